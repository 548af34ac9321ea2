"""A run with real worker processes on a real broker, for tests of workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import redis
from celery import Celery
from waiting import until

from azq.bus.redis import RedisBus
from azq.config import NetworkConfig, RunConfig, RunSections, SearchConfig, SelfPlayConfig, VolunteersConfig, dump_run
from azq.ledger import Ledger
from azq.ledger.types import JobState, JobView
from azq.queue import make_app, publish
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Heartbeat, Job, RunRecord, SampleEvent

ROOT = Path(__file__).parents[2]
RUN = "toe"
LEASE_S = 1.5
NETWORK = NetworkConfig(blocks=1, channels=16)


class Fleet:
    """A run, its ledger and some worker processes."""

    def __init__(self, broker: Any, tmp_path: Path) -> None:
        self.client: redis.Redis = connect(broker.control_url)
        self.bus = RedisBus(self.client)
        self.ledger = Ledger(self.client)
        self.app: Celery = make_app(broker.control_url)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._tmp_path = tmp_path
        self._env = {
            **os.environ,
            "AZQ_BROKER__CONTROL_URL": broker.control_url,
            "AZQ_BROKER__DATA_URL": broker.data_url,
            "AZQ_DAEMON__LEASE_S": str(LEASE_S),
            "AZQ_WORKER__HEARTBEAT_S": "0.5",
            "AZQ_HOME": str(tmp_path),
            "AZQ_INFERENCE__DEVICE": "cpu",
            "AZQ_INFERENCE__THREADS": "1",
        }

    def create_run(
        self,
        search: SearchConfig | None = None,
        until: dict[str, float] | None = None,
        volunteers: VolunteersConfig | None = None,
        **selfplay: Any,
    ) -> None:
        # No learner takes the games: with the usual bound of those that wait self-play would stall after seconds.
        settings = {"evaluator": "uniform", "games_in_flight": 16, "journal_s": 0.1, "max_waiting_games": 10**6, **selfplay}
        sections = RunSections(
            run=RunConfig(game="tic_tac_toe", seed=3),
            search=search or SearchConfig(num_simulations=64),
            selfplay=SelfPlayConfig(**settings),
            network=NETWORK,
            volunteers=volunteers or VolunteersConfig(),
        )
        self.ledger.create_run(RunRecord(RUN, msgspec.json.encode(dump_run(sections)), until or {}, str(self._tmp_path), 0))

    def work_as(self, control_url: str) -> None:
        """Has the workers that start from now on be another user of the control plane."""
        self._env["AZQ_BROKER__CONTROL_URL"] = control_url

    def start_inference(self) -> subprocess.Popen[bytes]:
        return self._spawn("import sys; from azq.config import load; from workers.inference import main; sys.exit(main(load()))")

    def start(self, queues: str = "selfplay.cpu,eval.cpu") -> subprocess.Popen[bytes]:
        code = "import sys; from azq.config import load; from workers.worker import main; "
        return self._spawn(code + f"sys.exit(main(load(), {queues.split(',')!r}, 1))")

    def _spawn(self, code: str) -> subprocess.Popen[bytes]:
        log = (self._tmp_path / f"worker{len(self.processes)}.log").open("wb")
        with log:
            process = subprocess.Popen([sys.executable, "-c", code], env=self._env, cwd=ROOT, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._tmp_path.glob("worker*.log")))

    def send(self, slice_s: float, games: int = 16) -> JobView:
        view = self.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=games, slice_s=slice_s))
        self.publish(view)
        return view

    def publish(self, view: JobView) -> None:
        publish(self.app, view)
        self.ledger.mark_published(view.job.job_id, view.attempt)

    def finished(self) -> int:
        return self.ledger.counts(RUN).finished

    def playing(self) -> int:
        """The child's process id once a job is played, from its lease."""
        until(lambda: self.finished() > 20, "finished game")
        (view,) = [view for view in self.ledger.jobs(RUN) if view.state is JobState.LEASED]
        return int(view.owner.rsplit(":", 1)[1])

    def beats(self) -> list[Heartbeat]:
        return [decode(frame, Heartbeat) for frame in self.bus.values(keys.BEAT_PREFIX).values()]

    def balanced(self) -> bool:
        """Every sum holds, no game came twice, and what is open is in the pool."""
        counts = self.ledger.counts(RUN)
        uids = [event.record.uid for event in self.samples()]
        assert len(uids) == len(set(uids)) == counts.finished
        assert counts.balanced
        return counts.open == self.bus_pool()

    def samples(self) -> list[SampleEvent]:
        return [decode(entry.frame, SampleEvent) for entry in self.bus.after(keys.samples(RUN), "0", count=1_000_000)]

    def bus_pool(self) -> int:
        length: Any = self.client.llen(keys.pool(RUN))
        return int(length)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.app.close()
        self.client.close()
