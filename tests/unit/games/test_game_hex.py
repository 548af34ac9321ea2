"""Hex: connections against a plain search and the swap."""

from __future__ import annotations

import random

import numpy as np

from azq import games


def test_planes_tell_stones_seat_and_whether_to_swap() -> None:
    game, rng = games.load("hex", size=5, swap=True), random.Random(34)
    for _ in range(60):
        state = game.new_initial_state()
        while not state.is_terminal():
            cells = np.array(str(state).split()).reshape(5, 5)
            for player, mark in enumerate("xo"):
                own, other, first, swap = state.observation_tensor(player)
                np.testing.assert_array_equal(own, cells == mark)
                np.testing.assert_array_equal(other, cells == "ox"[player])
                assert (first == (player == 0)).all()
                assert (swap == (25 in state.legal_actions())).all()
            state.apply_action(25 if 25 in state.legal_actions() and rng.random() < 0.5 else rng.choice(state.legal_actions()))
    assert games.load("hex", size=5).observation_planes() == (3, 5, 5)
    assert game.num_scalars() == 0  # planes alone: networks of planes run on the fastest pass


def test_a_stolen_stone_is_mirrored_between_the_edges() -> None:
    state = games.load("hex", size=5, swap=True).new_initial_state()
    state.apply_action(5 * 1 + 3)
    assert state.action_to_string(25) == "swap"
    state.apply_action(25)
    assert state.notation() == "5/5/5/1o3/5 x swapped"
    assert 25 not in state.legal_actions()
