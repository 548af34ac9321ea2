"""Rules and observations against OpenSpiel, step by step over random games."""

from __future__ import annotations

import random

import numpy as np
import pytest

from azq import games

pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel, the independent oracle for the rules, is not installed")

GAMES = {"connect_four": 1500, "tic_tac_toe": 1500}


@pytest.mark.parametrize(("name", "count"), GAMES.items())
def test_random_games_agree(name: str, count: int) -> None:
    ours, theirs = games.load(name), pyspiel.load_game(name)
    assert ours.num_distinct_actions() == theirs.num_distinct_actions()
    assert ours.num_players() == theirs.num_players()
    assert ours.max_game_length() == theirs.max_game_length()
    rng = random.Random(1)
    for _ in range(count):
        state, oracle = ours.new_initial_state(), theirs.new_initial_state()
        while not oracle.is_terminal():
            assert not state.is_terminal()
            assert state.current_player() == oracle.current_player()
            legal = oracle.legal_actions()
            assert state.legal_actions() == legal
            action = rng.choice(legal)
            assert state.action_to_string(action) == oracle.action_to_string(action)
            state.apply_action(action)
            oracle.apply_action(action)
        assert state.is_terminal()
        assert state.returns() == oracle.returns()
        assert state.history() == oracle.history()
        assert str(state).strip() == str(oracle).strip()
        assert state.legal_actions_mask() == [0] * ours.num_distinct_actions()


@pytest.mark.parametrize("name", GAMES)
def test_planes_are_own_and_other_of_openspiels_tensor(name: str) -> None:
    """OpenSpiel's planes are absolute: one for each mark and one for empty cells. Ours are seen by a player."""
    ours, theirs = games.load(name), pyspiel.load_game(name)
    rng = random.Random(2)
    for _ in range(100):
        state, oracle = ours.new_initial_state(), theirs.new_initial_state()
        while not oracle.is_terminal():
            tensor = np.array(oracle.observation_tensor(0), np.float32).reshape(theirs.observation_tensor_shape())
            found = [state.observation_tensor(player) for player in (0, 1)]
            np.testing.assert_array_equal(found[0], found[1][::-1])
            np.testing.assert_array_equal(found[oracle.current_player()], state.observation_tensor())
            marks = {plane.tobytes() for plane in tensor}
            assert found[0][0].tobytes() in marks
            assert found[0][1].tobytes() in marks
            assert found[0][0].sum() - found[0][1].sum() == len(state.history()) % 2
            action = rng.choice(oracle.legal_actions())
            state.apply_action(action)
            oracle.apply_action(action)
