"""A run on a real broker, its folder, a lease that finishes games, and processes of its learner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
from replay_games import play_game
from waiting import PATIENCE_S

from azq import games
from azq.bus.redis import RedisBus
from azq.config import LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.ledger import Ledger
from azq.store.signing import make_key
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Job, LearnerStatus, RunRecord

RUN = "ttt"
SECTIONS = RunSections(
    run=RunConfig(game="tic_tac_toe"),
    network=NetworkConfig(blocks=1, channels=8),
    learner=LearnerConfig(
        device="cpu",
        threads=1,
        batch_size=16,
        min_window=50,
        samples_per_insert=1.0,
        warmup_steps=2,
        publish_every_s=0.3,
        checkpoint_every_s=1.0,
    ),
)


class Place:
    """A run of tic-tac-toe."""

    def __init__(self, url: str, folder: Path, sections: RunSections) -> None:
        self.url, self.folder = url, folder
        self.client = connect(url)
        self.bus, self.ledger = RedisBus(self.client), Ledger(self.client)
        self.game = games.load("tic_tac_toe")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.ledger.create_run(self._record(sections))
        make_key(self.client, folder)
        job = self.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=10_000, slice_s=60.0)).job
        lease = self.ledger.claim(job.job_id, 1, "selfplay@test:1", 600.0)
        assert lease is not None
        self.lease = lease

    def change(self, sections: RunSections) -> None:
        """Other settings, for the processes started from now on."""
        self.ledger.update_run(self._record(sections))

    def finish_games(self, count: int) -> None:
        for record in self.ledger.adopt(self.lease, count):
            self.ledger.replace_games(self.lease, [play_game(self.game, record.uid)], 0)

    def learner(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"learner-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "azq", "learner", "--run", RUN, *arguments],
                env={**os.environ, "AZQ_BROKER__CONTROL_URL": self.url, "AZQ_HOME": str(self.folder), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(process)
        return process

    def status(self) -> LearnerStatus | None:
        frame = self.bus.get(keys.learner_status(RUN)) or self.bus.get(keys.learned(RUN))  # the latter stays
        return decode(frame, LearnerStatus) if frame else None

    def all_inserted(self) -> bool:
        counts = self.ledger.counts(RUN)
        return counts.balanced and counts.finished == counts.inserted > 0

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"learner-{self.processes.index(process)}.log").read_text()

    def output(self, process: subprocess.Popen[bytes]) -> str:
        process.wait(timeout=PATIENCE_S)
        return self.log(process)

    def stop(self, process: subprocess.Popen[bytes]) -> str:
        process.send_signal(signal.SIGTERM)
        output = self.output(process)
        assert process.returncode == 0, output
        return output

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.client.close()

    def _record(self, sections: RunSections) -> RunRecord:
        return RunRecord(RUN, msgspec.json.encode(sections.model_dump(mode="json")), {}, str(self.folder / RUN), 0)
