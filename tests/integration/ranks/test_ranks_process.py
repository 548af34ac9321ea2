"""Three ranks on a real broker: one killed in mid-run and back again, rank 0 killed, another number of ranks after a restart."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from learner_processes import RUN, Place
from waiting import until

from azq.config import LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.learner import checkpoint
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import RankTable


def sections(ranks: int, **learner: Any) -> RunSections:
    defaults: dict[str, Any] = {
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


class Ranks(Place):
    """The same with figures of its ranks."""

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


@pytest.fixture
def place(broker: Any, tmp_path: Path) -> Iterator[Ranks]:
    where = Ranks(broker.control_url, tmp_path, sections(3))
    yield where
    where.close()


@pytest.mark.release
def test_a_killed_rank_is_dropped_and_taken_back_and_nothing_is_lost(place):
    learner = place.learner()
    place.finish_games(40)
    until(lambda: place.step() > 0, "it trains alone")
    early = place.status()
    until(lambda: place.healthy() == 3, "three ranks train")
    place.trains_on()
    os.kill(place.member(2), signal.SIGKILL)
    place.finish_games(10)
    until(lambda: "rank_lost" in place.log(learner), "the loss is noticed")
    until(lambda: place.status().rank_failures >= 1, "the loss is counted")
    place.trains_on()
    until(lambda: place.healthy() == 3, "the rank is back")
    place.trains_on()
    until(place.all_inserted, "every game is stored")
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


@pytest.mark.release
def test_ranks_that_were_started_by_hand_outlive_rank_0_and_join_the_next_one(place):
    place.change(sections(2))
    first = place.learner(RANK="0", WORLD_SIZE="2")
    other = place.learner(RANK="1", WORLD_SIZE="2")
    place.finish_games(40)
    until(lambda: place.healthy() == 2, "two ranks train")
    place.trains_on()
    until(lambda: checkpoint.stored(place.folder / RUN / "checkpoints"), "a checkpoint")
    first.kill()
    first.wait()
    until(lambda: "group_lost" in place.log(other), "the other rank notices")
    second = place.learner(RANK="0", WORLD_SIZE="2")
    until(lambda: "ranks=2" in place.log(second), "both meet again")
    place.finish_games(5)
    until(place.all_inserted, "every game is stored")
    place.trains_on()
    assert other.poll() is None
    place.stop(second)
    place.stop(other)
    assert place.ledger.counts(RUN).inserted == 45


@pytest.mark.release
def test_a_run_goes_on_with_another_number_of_ranks(place):
    learner = place.learner()
    place.finish_games(40)
    until(lambda: place.healthy() == 3, "three ranks train")
    place.trains_on()
    place.stop(learner)
    state = checkpoint.load_newest(place.folder / RUN / "checkpoints").state
    assert len(state.shares) == 3
    for ranks in (1, 2):
        place.change(sections(ranks))
        learner = place.learner()
        until(lambda ranks=ranks: (status := place.status()) and status.ranks == status.ranks_healthy == ranks, f"{ranks} ranks train")
        place.trains_on()
        place.stop(learner)
        later = checkpoint.load_newest(place.folder / RUN / "checkpoints").state
        assert later.step > state.step
        assert len(later.shares) == ranks
        state = later
