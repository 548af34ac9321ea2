"""A learner whose network grows in the middle of its run: what it publishes, and what it resumes with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from learner_doubles import DictStore, ListTracker, OneRunLedger
from learner_workplace import turn
from memory_broker import MemoryBus
from replay_games import frame

from azq import games
from azq.config import LearnerConfig, NetworkConfig, NetworkStage, RunConfig, RunSections
from azq.errors import WeightsError
from azq.learner import checkpoint
from azq.learner.learner import Learner
from azq.learner.opening import LearnerSetup
from azq.nets import NetSpec, build, from_bytes, load_into, network_of
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import RunRecord, WeightEvent

RUN = "growing"
SMALL, LARGE = (1, 8), (2, 16)


class Place:
    """A run of 100 minutes whose network grows after 50."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bus, self.store, self.game = MemoryBus(), DictStore(), games.load("tic_tac_toe")
        self.ledger = OneRunLedger(RUN, self.bus)
        self.ledger.record = RunRecord(RUN, b"{}", {"minutes": 100.0}, "", 0)
        self.growth = (NetworkStage(at=0.5, blocks=LARGE[0], channels=LARGE[1]),)
        self.at(10)
        self.finish_games(1, 40)

    def finish_games(self, first: int, last: int) -> None:
        for uid in range(first, last + 1):
            self.bus.publish(keys.samples(RUN), frame(self.game, uid))

    def at(self, minutes: float) -> None:
        self.ledger.active_ms = int(minutes * 60_000)

    def learner(self) -> Learner:
        config = LearnerConfig(
            device="cpu", precision="float32", batch_size=16, min_window=40, warmup_steps=2, limiter_slack=100, growth=self.growth
        )
        sections = RunSections(
            run=RunConfig(game="tic_tac_toe", seed=1), network=NetworkConfig(blocks=SMALL[0], channels=SMALL[1]), learner=config
        )
        doubles: dict[str, Any] = {
            "bus": self.bus,
            "ledger": self.ledger,
            "store": self.store,
            "tracker": ListTracker(),
            "consumer": "learner@test:1",
        }
        return LearnerSetup(RUN, self.folder, sections, self.game, **doubles).open()

    def published(self) -> list[tuple[int, int]]:
        """Blocks and channels of every version, whose tensors must be those of such a network."""
        sizes = []
        for entry in self.bus.after(keys.weights(RUN), "0"):
            event = decode(entry.frame, WeightEvent)
            state, meta = from_bytes(self.store.get(event.uri, event.sha256))
            network = network_of(meta)
            load_into(build(network, NetSpec.of(self.game)), state)
            assert (event.blocks, event.channels) == (network.blocks, network.channels)
            sizes.append((network.blocks, network.channels))
        return sizes

    def kept(self) -> checkpoint.Checkpoint:
        found = checkpoint.load_newest(self.folder / "checkpoints")
        assert found is not None
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr("azq.learner.learner.STATUS_EVERY_S", 0.0)
    return Place(tmp_path)


def steps(learner: Learner, count: int) -> None:
    """Turns until so many steps are done."""
    goal = learner.status().step + count
    for _ in range(1000):
        if learner.status().step >= goal:
            return
        turn(learner)
    raise AssertionError(f"stands at step {learner.status().step}, not {goal}")


def test_the_network_grows_at_its_share_and_is_published_with_its_size(place):
    learner = place.learner()
    steps(learner, 3)
    place.at(60)
    place.finish_games(41, 60)
    steps(learner, 3)
    learner.finish()
    assert place.published() == [SMALL, LARGE]
    assert place.kept().state.network["channels"] == LARGE[1]


@pytest.mark.parametrize("grown", [False, True])
def test_a_learner_resumes_before_and_after_growth(place, grown):
    first = place.learner()
    steps(first, 3)
    if grown:
        place.at(60)
        turn(first)
    first.finish()
    kept = place.kept()
    assert kept.state.network["blocks"] == (LARGE if grown else SMALL)[0]
    place.at(10)  # a horizon that was moved away: what has grown stays
    second = place.learner()
    second.finish()
    again = place.kept()
    assert again.state.step == kept.state.step
    assert again.tensors.keys() == kept.tensors.keys()
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in kept.tensors.items())


def test_without_a_checkpoint_it_goes_on_from_published_weights_of_the_grown_network(place):
    first = place.learner()
    steps(first, 3)
    place.at(60)
    turn(first)
    first.finish()
    for path in checkpoint.stored(place.folder / "checkpoints"):
        path.unlink()
    place.learner().finish()
    assert place.kept().state.network["channels"] == LARGE[1]


def test_a_checkpoint_of_a_network_that_the_run_does_not_know_is_refused_by_its_tensors(place):
    place.at(60)
    learner = place.learner()
    turn(learner)
    learner.finish()
    place.growth = ()
    with pytest.raises(WeightsError, match="do not fit"):
        place.learner()


def test_a_stage_by_samples_needs_no_horizon_and_weights_say_how_many_there_were(place):
    place.ledger.record = RunRecord(RUN, b"{}", {}, "", 0)
    place.growth = (NetworkStage(samples=500, blocks=LARGE[0], channels=LARGE[1]),)
    learner = place.learner()
    steps(learner, 3)
    few = learner.status().samples_inserted
    place.finish_games(41, 120)
    steps(learner, 3)
    learner.finish()
    assert place.published() == [SMALL, LARGE]
    told = [decode(entry.frame, WeightEvent).samples for entry in place.bus.after(keys.weights(RUN), "0")]
    assert told[-1] == learner.status().samples_inserted > 500 > few > 0
