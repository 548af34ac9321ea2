"""Othello: 6 x 6 against the plain one, planes and passes."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from reference.boards import PlainOthello

from azq import games

WIPED_OUT = [37, 43, 34, 29, 52, 45, 38, 44, 20]  # f5 d6 c5 f4 e7 f6 g5 e6 e3: the shortest game there is


@pytest.mark.parametrize("count", [200, pytest.param(1500, marks=pytest.mark.release)])
def test_the_small_board_is_the_plain_one(count: int) -> None:
    game, rng = games.load("othello", size=6), random.Random(13)
    passes = early = 0
    for _ in range(count):
        state, oracle = game.new_initial_state(), PlainOthello(6)
        while not oracle.over():
            assert state.current_player() == oracle.player
            legal = oracle.legal()
            assert state.legal_actions() == legal
            passes += legal == [36]
            action = rng.choice(legal)
            state.apply_action(action)
            oracle.apply(action)
            assert str(state) == str(oracle)
        assert state.is_terminal()
        assert state.returns()[0] == np.sign(oracle.lead())
        assert state.margin(0) == -state.margin(1) == pytest.approx(oracle.lead() / 36)
        early += "." in str(oracle)
    assert passes > count / 2
    assert early > 0


@pytest.mark.parametrize("size", [6, 8])
def test_planes_are_own_other_and_placements(size: int) -> None:
    game, rng = games.load("othello", size=size), random.Random(15)
    for _ in range(20):
        state = game.new_initial_state()
        while not state.is_terminal():
            cells = np.array(list(str(state).replace("\n", ""))).reshape(size, size)
            places = np.zeros(size * size)
            places[[action for action in state.legal_actions() if action < size * size]] = 1
            for player, mark in enumerate("xo"):
                own, other, placements = state.observation_tensor(player)
                np.testing.assert_array_equal(own, cells == mark)
                np.testing.assert_array_equal(other, cells == "ox"[player])
                np.testing.assert_array_equal(placements.reshape(-1), places)
            state.apply_action(rng.choice(state.legal_actions()))


def turned(game: games.Game, state: games.State, symmetry: int) -> games.State:
    """The image of a position under a symmetry, by way of its notation."""
    size = game.observation_planes()[1]
    cells = str(state).replace("\n", "")
    image = "".join(cells[source] for source in game.plane_permutation(symmetry))
    rows = [re.sub(r"\.+", lambda run: str(len(run[0])), image[size * row : size * (row + 1)]) for row in range(size)]
    return game.state_from_notation("/".join(rows) + " " + "xo"[state.current_player()])


@pytest.mark.parametrize("size", [6, 8])
def test_a_position_and_its_image_go_on_alike(size: int) -> None:
    game, rng = games.load("othello", size=size), random.Random(17)
    for number in range(64):
        symmetry = number % 8
        actions, cells = game.action_permutation(symmetry), game.plane_permutation(symmetry)
        state = game.new_initial_state()
        for _ in range(rng.randrange(1, 30)):
            if not state.is_terminal():
                state.apply_action(rng.choice(state.legal_actions()))
        if state.is_terminal():
            continue
        image = turned(game, state, symmetry)
        while not state.is_terminal():
            assert sorted(actions[state.legal_actions()]) == image.legal_actions()
            planes = state.observation_tensor().reshape(3, -1)[:, cells].reshape(3, size, size)
            np.testing.assert_array_equal(planes, image.observation_tensor())
            action = rng.choice(state.legal_actions())
            state.apply_action(action)
            image.apply_action(int(actions[action]))
        assert image.is_terminal()
        assert image.returns() == state.returns()


def test_the_shortest_game_wipes_out_one_side() -> None:
    state = games.load("othello").new_initial_state()
    for action in WIPED_OUT:
        state.apply_action(action)
    assert state.is_terminal()
    assert state.returns() == [1.0, -1.0]
    assert state.margin(0) == 13 / 64
