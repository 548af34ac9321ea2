"""Three ranks on a real broker: one killed in mid-run and back again, rank 0 killed, another number of ranks after a restart."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from replay_games import play_game

from azq import games
from azq.bus.connect import connect
from azq.bus.redis import RedisBus
from azq.config import LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.learner import checkpoint
from azq.ledger import Ledger
from azq.ledger.types import Lease
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import LearnerStatus, RankTable, RunRecord

RUN = "ttt"


def sections(ranks: int, **learner: object) -> RunSections:
    defaults = {
        "device": "cpu",
        "threads": 1,
        "batch_size": 48,
        "min_window": 60,
        "samples_per_insert": 1e6,
        "warmup_steps": 2,
        "publish_every_s": 0.5,
        "checkpoint_every_s": 1.0,
        "ranks": ranks,
    }
    return RunSections(
        run=RunConfig(game="tic_tac_toe"), network=NetworkConfig(blocks=1, channels=8), learner=LearnerConfig(**{**defaults, **learner})
    )


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        threading.Event().wait(0.02)


class Place:
    """A run on a broker, its folder, a lease that finishes games, and rank processes."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.client = connect(url)
        self.bus, self.ledger = RedisBus(self.client), Ledger(self.client)
        self.game = games.load("tic_tac_toe")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.lease: Lease | None = None

    def settings(self, chosen: RunSections) -> None:
        record = RunRecord(RUN, msgspec.json.encode(chosen.model_dump(mode="json")), {}, str(self.folder / RUN), 0)
        if self.lease is None:
            self.ledger.create_run(record)
            job = self.ledger.enqueue(RUN, "selfplay", "cpu", games=10_000, slice_s=60.0).job
            self.lease = self.ledger.claim(job.job_id, 1, "selfplay@test:1", 600.0)
        else:
            self.ledger.update_run(record)

    def finish_games(self, count: int) -> None:
        assert self.lease is not None
        for record in self.ledger.adopt(self.lease, count):
            self.ledger.finish_games(self.lease, [play_game(self.game, record.uid)])

    def rank(self, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"rank-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "azq", "learner", "--run", RUN],
                env={**os.environ, "AZQ_BROKER__CONTROL_URL": self.url, "AZQ_HOME": str(self.folder), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(process)
        return process

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"rank-{self.processes.index(process)}.log").read_text()

    def status(self) -> LearnerStatus | None:
        frame = self.bus.get(keys.learner_status(RUN))
        return decode(frame, LearnerStatus) if frame else None

    def healthy(self) -> int:
        status = self.status()
        return status.ranks_healthy if status else 0

    def step(self) -> int:
        status = self.status()
        return status.step if status else 0

    def trains_on(self) -> None:
        step = self.step()
        until(lambda: self.step() > step + 20, "training goes on")

    def member(self, rank: int) -> int:
        """The process that is a rank now."""
        table = decode(self.bus.get(keys.ranks(RUN)), RankTable)
        return int(dict(table.members)[rank].split(":")[1])

    def balanced(self) -> bool:
        counts = self.ledger.counts(RUN)
        return counts.balanced and counts.finished == counts.inserted > 0

    def stop(self, process: subprocess.Popen[bytes]) -> str:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        assert process.returncode == 0, self.log(process)
        return self.log(process)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.client.close()


@pytest.fixture
def place(broker, tmp_path) -> Iterator[Place]:
    where = Place(broker.control_url, tmp_path)
    yield where
    where.close()


@pytest.mark.slow
def test_a_killed_rank_is_dropped_and_taken_back_and_nothing_is_lost(place):
    place.settings(sections(3))
    learner = place.rank()
    place.finish_games(40)
    until(lambda: place.healthy() == 3, "three ranks train")
    place.trains_on()
    early = place.status()
    os.kill(place.member(2), signal.SIGKILL)
    place.finish_games(10)
    until(lambda: "rank_lost" in place.log(learner), "the loss is noticed")
    until(lambda: place.status().rank_failures >= 1, "the loss is counted")
    place.trains_on()
    until(lambda: place.healthy() == 3, "the rank is back")
    place.trains_on()
    until(place.balanced, "every game is stored")
    late = place.status()
    assert late.loss_policy < early.loss_policy
    assert 0 < late.scaling_efficiency < 1.5
    assert 0 < late.sync_s < late.batch_s
    log = place.stop(learner)
    assert re.search(r"rank_died.*rank=2", log)
    state = checkpoint.load_newest(place.folder / RUN / "checkpoints").state
    assert state.step == place.step()
    assert sum(state.shares) == 48
    assert state.samples_consumed == 48 * state.step


@pytest.mark.slow
def test_ranks_that_were_started_by_hand_outlive_rank_0_and_join_the_next_one(place):
    place.settings(sections(2))
    first = place.rank(RANK="0", WORLD_SIZE="2")
    other = place.rank(RANK="1", WORLD_SIZE="2")
    place.finish_games(40)
    until(lambda: place.healthy() == 2, "two ranks train")
    place.trains_on()
    until(lambda: checkpoint.stored(place.folder / RUN / "checkpoints"), "a checkpoint")
    first.kill()
    first.wait()
    until(lambda: "group_lost" in place.log(other), "the other rank notices")
    second = place.rank(RANK="0", WORLD_SIZE="2")
    until(lambda: "ranks=2" in place.log(second), "both meet again")
    place.finish_games(5)
    until(place.balanced, "every game is stored")
    place.trains_on()
    assert other.poll() is None
    place.stop(second)
    place.stop(other)
    assert place.ledger.counts(RUN).inserted == 45


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks(place):
    place.settings(sections(3))
    learner = place.rank()
    place.finish_games(40)
    until(lambda: place.healthy() == 3, "three ranks train")
    place.trains_on()
    place.stop(learner)
    state = checkpoint.load_newest(place.folder / RUN / "checkpoints").state
    assert len(state.shares) == 3
    for ranks in (1, 2):
        place.settings(sections(ranks))
        learner = place.rank()
        until(lambda ranks=ranks: (status := place.status()) and status.ranks == status.ranks_healthy == ranks, f"{ranks} ranks train")
        place.trains_on()
        place.stop(learner)
        later = checkpoint.load_newest(place.folder / RUN / "checkpoints").state
        assert later.step > state.step
        assert len(later.shares) == ranks
        state = later
