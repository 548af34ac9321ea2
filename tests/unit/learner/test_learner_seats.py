"""The whole learner on games with chance, seats and every head: games in, weights out, a restart in between."""

from __future__ import annotations

import numpy as np
import pytest
from learner_doubles import SecretSum
from learner_workplace import Workplace, run_dry
from replay_games import play_game
from waiting import PATIENCE_S

from azq.config import InferenceConfig, NetworkConfig
from azq.errors import ConfigError, WeightsError
from azq.inference.ask.local import LocalEvaluator

ALL = ("margin", "hidden")


class Place(Workplace):
    """A run of any game, whose learners have any heads."""

    def of(self, auxiliary=ALL, kind="mlp"):
        return self.learner(network=NetworkConfig(kind=kind, blocks=1, channels=16, heads=2, auxiliary=auxiliary))

    def newest_weights(self):
        return self.store.blobs[self.weights()[-1].sha256]


@pytest.mark.parametrize(("players", "kind"), [(2, "mlp"), (3, "transformer"), (4, "resnet")])
def test_a_run_with_every_head_trains_publishes_and_resumes(tmp_path, players, kind):
    place = Place(tmp_path, SecretSum(players))
    first = place.of(kind=kind)
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
    second = place.of(kind=kind)
    assert (second.status().step, second.status().samples_inserted) == (before.step, before.samples_inserted)
    place.finish_games(41, 60)
    run_dry(second)
    second.finish()
    assert second.status().step > before.step
    evaluator = LocalEvaluator.from_bytes(place.game, place.newest_weights(), InferenceConfig(device="cpu", threads=1, max_batch=16))
    state = place.game.new_initial_state()
    state.apply_action(0)
    evaluation = evaluator.result(evaluator.submit(state.packed_observation()[None]), timeout_s=PATIENCE_S)
    evaluator.close()
    assert evaluation.values.shape == (1, 1 if players == 2 else players)


def test_a_checkpoint_of_other_heads_is_refused_by_name(tmp_path):
    place = Place(tmp_path, SecretSum(3))
    learner = place.of()
    place.finish_games(1, 20)
    run_dry(learner)
    learner.finish()
    with pytest.raises(WeightsError, match="it has no tensor auxiliary"):
        place.of(("margin",))


def test_a_head_without_targets_leaves_no_trace(tmp_path, monkeypatch):
    game = SecretSum(3)
    monkeypatch.setattr(game, "num_hidden", lambda: 0)
    with pytest.raises(ConfigError, match=r"network\.auxiliary names 'hidden'"):
        Place(tmp_path, game).of()
    assert not list(tmp_path.iterdir())
