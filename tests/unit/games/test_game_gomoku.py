"""Gomoku: exact fives against a plain oracle, planes, lines at the edge."""

from __future__ import annotations

import random

import numpy as np
import pytest
from reference.boards import longest_line

from azq import games


def crowded_games(exact5: bool, count: int, seed: int) -> int:
    """Plays where the players crowd three rows and their diagonals; returns how many overlines there were."""
    game, rng, overlines = games.load("gomoku", size=9, exact5=exact5), random.Random(seed), 0
    for _ in range(count):
        state = game.new_initial_state()
        stones: tuple[set[tuple[int, int]], ...] = (set(), set())
        bands = [rng.sample(range(9), 2), rng.sample(range(9), 2)]
        while not state.is_terminal():
            player, legal = state.current_player(), state.legal_actions()
            wanted = [action for action in legal if action // 9 in bands[player]]
            action = rng.choice(wanted if wanted and rng.random() < 0.9 else legal)
            state.apply_action(action)
            cell = divmod(action, 9)
            stones[player].add(cell)
            lengths = longest_line(stones[player], cell)
            won = any(length == 5 or (length > 5 and not exact5) for length in lengths)
            overlines += max(lengths) > 5
            assert state.is_terminal() == (won or sum(map(len, stones)) == 81)
            assert state.returns()[player] == float(won)
            assert sum(state.returns()) == 0.0
    return overlines


@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=pytest.mark.release)])
@pytest.mark.parametrize("exact5", [False, True])
def test_lines_of_six_count_as_the_rules_say(exact5: bool, count: int) -> None:
    assert crowded_games(exact5, count, 23) > count / 15


def test_planes_are_own_other_and_the_last_move() -> None:
    game, rng = games.load("gomoku", size=11), random.Random(25)
    for _ in range(5):
        state = game.new_initial_state()
        while not state.is_terminal():
            cells = np.array(list(str(state).replace("\n", ""))).reshape(11, 11)
            last = np.zeros(121)
            last[state.history()[-1:]] = 1
            for player, mark in enumerate("xo"):
                planes = state.observation_tensor(player)
                np.testing.assert_array_equal(planes[0], cells == mark)
                np.testing.assert_array_equal(planes[1], cells == "ox"[player])
                np.testing.assert_array_equal(planes[2].reshape(-1), last)
            state.apply_action(rng.choice(state.legal_actions()))
