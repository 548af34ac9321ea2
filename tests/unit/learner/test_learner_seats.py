"""The whole learner on games with chance, seats and every head: games in, weights out, a restart in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learner_doubles import DictStore, ListTracker, OneRunLedger, SecretSum
from learner_workplace import run_dry
from memory_broker import MemoryBus
from replay_games import frame, play_game

from azq.config import InferenceConfig, LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.errors import ConfigError, WeightsError
from azq.inference.ask.local import LocalEvaluator
from azq.learner.opening import LearnerSetup
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import WeightEvent

RUN = "seats"
ALL = ("margin", "hidden")


class Place:
    """A run's folder and broker; learners of it come and go."""

    def __init__(self, folder: Path, game: Any) -> None:
        self.folder, self.game, self.bus = folder, game, MemoryBus()
        self.ledger, self.store, self.tracker = OneRunLedger(RUN, self.bus), DictStore(), ListTracker()

    def learner(self, auxiliary=ALL, kind="mlp"):
        sections = RunSections(
            run=RunConfig(game="secret_sum"),
            network=NetworkConfig(kind=kind, blocks=1, channels=16, heads=2, auxiliary=auxiliary),
            learner=LearnerConfig(
                device="cpu", precision="float32", batch_size=16, min_window=40, max_window=2000, warmup_steps=2, publish_every_s=3600.0
            ),
        )
        parts: dict[str, Any] = {"bus": self.bus, "ledger": self.ledger, "store": self.store, "tracker": self.tracker}
        return LearnerSetup(RUN, self.folder, sections, self.game, consumer="learner@test:1", **parts).open()

    def finish_games(self, first, last):
        for uid in range(first, last + 1):
            self.bus.publish(keys.samples(RUN), frame(self.game, uid))

    def newest_weights(self):
        event = decode(self.bus.after(keys.weights(RUN), "0")[-1].frame, WeightEvent)
        return self.store.blobs[event.sha256]


@pytest.mark.parametrize(("players", "kind"), [(2, "mlp"), (3, "transformer"), (4, "resnet")])
def test_a_run_with_every_head_trains_publishes_and_resumes(tmp_path, players, kind):
    place = Place(tmp_path, SecretSum(players))
    first = place.learner(kind=kind)
    place.finish_games(1, 40)
    run_dry(first)
    first.finish()
    capped = sum(np.frombuffer(play_game(place.game, uid).record.actions, "<u2")[0] == 3 for uid in range(1, 41))
    before = first.status()
    assert 0 < capped < 40
    assert before.samples_inserted == (40 - capped) * 2 * players
    assert before.games_inserted == 40
    heads = {f"loss/{head}" for head in (*ALL, *(["outcome"] if players == 2 else []))}
    assert heads <= set(place.tracker.seen[-1][1])
    second = place.learner(kind=kind)
    assert (second.status().step, second.status().samples_inserted) == (before.step, before.samples_inserted)
    place.finish_games(41, 60)
    run_dry(second)
    second.finish()
    assert second.status().step > before.step
    evaluator = LocalEvaluator.from_bytes(place.game, place.newest_weights(), InferenceConfig(device="cpu", threads=1, max_batch=16))
    state = place.game.new_initial_state()
    state.apply_action(0)
    evaluation = evaluator.result(evaluator.submit(state.packed_observation()[None]), timeout_s=10.0)
    evaluator.close()
    assert evaluation.values.shape == (1, 1 if players == 2 else players)


def test_a_checkpoint_of_other_heads_is_refused_by_name(tmp_path):
    place = Place(tmp_path, SecretSum(3))
    learner = place.learner()
    place.finish_games(1, 20)
    run_dry(learner)
    learner.finish()
    with pytest.raises(WeightsError, match="it has no tensor auxiliary"):
        place.learner(("margin",))


def test_a_head_without_targets_leaves_no_trace(tmp_path, monkeypatch):
    game = SecretSum(3)
    monkeypatch.setattr(game, "num_hidden", lambda: 0)
    with pytest.raises(ConfigError, match=r"network\.auxiliary names 'hidden'"):
        Place(tmp_path, game).learner()
    assert not list(tmp_path.iterdir())
