"""Games of others as a learner takes them: the move is the policy, the result the value, nothing for chance or after a resignation."""

from __future__ import annotations

import numpy as np
import pytest
from replay_games import play_game

from azq import games
from azq.notation.taught import as_event
from azq.replay.samples import Columns, judge


@pytest.mark.parametrize("name", ["connect_four", "backgammon", "beasty_bar", "blob", "othello"])
def test_each_decision_teaches_its_move_and_its_players_result(name: str) -> None:
    game = games.load(name)
    played = play_game(game, 7)
    actions = np.frombuffer(played.record.actions, "<u2").tolist()
    event = as_event(game, 3, actions, "import", 5)
    assert (event.record.uid, event.worker, event.finished_ms) == (3, "import", 5)
    assert event.returns == pytest.approx(played.returns)
    judged = judge(game, [event], Columns(root_value_fraction=0.5))
    assert not judged.refused
    (samples,) = judged.samples
    decisions = np.frombuffer(played.record.simulations, "<u2") > 0
    assert len(samples) == judged.counts[3] == decisions.sum()
    assert samples.policies.argmax(1).tolist() == np.asarray(actions)[decisions].tolist()
    assert samples.policies.max(1) == pytest.approx(1.0)
    values = np.frombuffer(event.record.root_values, "<f4").reshape(len(actions), -1)
    assert not values[~decisions].any()
    (plain,) = judge(game, [played]).samples
    np.testing.assert_allclose(samples.values, plain.values, atol=1e-6)  # whatever the share of root values: they say the result too


def test_moves_after_a_resignation_teach_nothing() -> None:
    game = games.load("connect_four")
    actions = np.frombuffer(play_game(game, 2).record.actions, "<u2").tolist()
    (samples,) = judge(game, [as_event(game, 1, actions, "import", 5, taught=4)]).samples
    assert samples.policies.argmax(1).tolist() == actions[:4]
