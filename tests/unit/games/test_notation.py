"""Positions as lines of text, both ways; broken lines are refused by the rule they break."""

from __future__ import annotations

import random

import pytest

from azq import games
from azq.errors import ConfigError

BROKEN = {
    "connect_four": [
        ("7/7/7/7/7/7", "side to move is missing"),
        ("7/7/7/7/7 x", "row 5"),
        ("7/7/7/7/3x3/7 o", "hangs in the air"),
        ("7/7/7/7/7/3x3 x", "x has moved 1 times more"),
        ("7/7/7/7/7/8 x", "row 6 does not have 7 cells"),
        ("7/7/7/7/7/3y3 o", "'y' is no cell"),
        ("7/7/7/7/xxxx3/oooo3 x", "four in line already"),
        ("7/7/7/7/7/7 x 5", "nothing follows"),
        ("", "row 1"),
        ("99999999999999999999/7/7/7/7/7 x", "row 1"),
    ],
    "tic_tac_toe": [("3/3/3 o", "x has moved 0 times"), ("xxx/oo1/o2 x", "three in line already")],
}


@pytest.mark.parametrize("name", ["connect_four", "tic_tac_toe"])
def test_a_position_survives_its_notation(name: str) -> None:
    rng = random.Random(4)
    game = games.load(name)
    for _ in range(30):
        state = game.new_initial_state()
        while not state.is_terminal():
            again = game.state_from_notation(state.notation())
            assert str(again) == str(state)
            assert again.legal_actions() == state.legal_actions()
            assert (again.packed_observation() == state.packed_observation()).all()
            state.apply_action(rng.choice(state.legal_actions()))
        assert game.state_from_notation(state.notation()).returns() == state.returns()


@pytest.mark.parametrize(("name", "text", "rule"), [(name, *case) for name, cases in BROKEN.items() for case in cases])
def test_a_broken_line_is_refused_by_its_rule(name: str, text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        games.load(name).state_from_notation(text)
