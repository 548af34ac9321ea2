"""A learner whose network grows in the middle of its run: what it publishes, and what it resumes with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learner_workplace import RUN, Workplace, turn

from azq.config import NetworkStage
from azq.errors import WeightsError
from azq.learner import checkpoint
from azq.learner.learner import Learner
from azq.nets import NetSpec, build, from_bytes, load_into, network_of
from azq.wire.messages import RunRecord

SMALL, LARGE = (1, 8), (2, 16)


class Place(Workplace):
    """A run of 100 minutes whose network grows after 50."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ledger.record = RunRecord(RUN, b"{}", {"minutes": 100.0}, "", 0)
        self.growth = (NetworkStage(at=0.5, blocks=LARGE[0], channels=LARGE[1]),)
        self.at(10)
        self.finish_games(1, 40)

    def at(self, minutes: float) -> None:
        self.ledger.active_ms = int(minutes * 60_000)

    def growing(self) -> Learner:
        return self.learner(growth=self.growth)

    def published(self) -> list[tuple[int, int]]:
        """Blocks and channels of every version, whose tensors must be those of such a network."""
        sizes = []
        for event in self.weights():
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
    learner = place.growing()
    steps(learner, 3)
    place.at(60)
    place.finish_games(41, 60)
    steps(learner, 3)
    learner.finish()
    assert place.published() == [SMALL, LARGE]
    assert place.kept().state.network["channels"] == LARGE[1]


@pytest.mark.parametrize("grown", [False, True])
def test_a_learner_resumes_before_and_after_growth(place, grown):
    first = place.growing()
    steps(first, 3)
    if grown:
        place.at(60)
        turn(first)
    first.finish()
    kept = place.kept()
    assert kept.state.network["blocks"] == (LARGE if grown else SMALL)[0]
    place.at(10)  # a horizon that was moved away: what has grown stays
    second = place.growing()
    second.finish()
    again = place.kept()
    assert again.state.step == kept.state.step
    assert again.tensors.keys() == kept.tensors.keys()
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in kept.tensors.items())


def test_without_a_checkpoint_it_goes_on_from_published_weights_of_the_grown_network(place):
    first = place.growing()
    steps(first, 3)
    place.at(60)
    turn(first)
    first.finish()
    for path in checkpoint.stored(place.folder / "checkpoints"):
        path.unlink()
    place.growing().finish()
    assert place.kept().state.network["channels"] == LARGE[1]


def test_a_checkpoint_of_a_network_that_the_run_does_not_know_is_refused_by_its_tensors(place):
    place.at(60)
    learner = place.growing()
    turn(learner)
    learner.finish()
    place.growth = ()
    with pytest.raises(WeightsError, match="do not fit"):
        place.growing()


def test_a_stage_by_samples_needs_no_horizon_and_weights_say_how_many_there_were(place):
    place.ledger.record = RunRecord(RUN, b"{}", {}, "", 0)
    place.growth = (NetworkStage(samples=500, blocks=LARGE[0], channels=LARGE[1]),)
    learner = place.growing()
    steps(learner, 3)
    few = learner.status().samples_inserted
    place.finish_games(41, 120)
    steps(learner, 3)
    learner.finish()
    assert place.published() == [SMALL, LARGE]
    told = [event.samples for event in place.weights()]
    assert told[-1] == learner.status().samples_inserted > 500 > few > 0
