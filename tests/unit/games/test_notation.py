"""Positions as lines of text, both ways; broken lines are refused by the rule they break."""

from __future__ import annotations

import random
from typing import Any

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


RULES: list[tuple[str, dict[str, Any], int]] = [
    ("connect_four", {}, 30),
    ("tic_tac_toe", {}, 30),
    ("2048", {"max_moves": 40}, 3),
    ("gomoku", {"size": 9}, 5),
    ("gomoku", {"size": 9, "exact5": True}, 5),
    ("hex", {"size": 5}, 10),
    ("hex", {"size": 5, "swap": True}, 100),
    ("othello", {"size": 6}, 10),
    ("othello", {}, 5),
    ("backgammon", {}, 5),
    ("backgammon", {"start": "race"}, 5),
    ("backgammon", {"start": "bearoff", "opening": "uniform"}, 5),
    ("backgammon", {"scoring": "winloss"}, 5),
    ("blob", {"players": 4, "cards": 5}, 6),
    ("blob", {"players": 3, "cards": 7, "trump": "none"}, 6),
    ("blob", {"players": 5, "cards": 3, "trump": "hearts", "dealer": 2}, 6),
    ("blob", {"players": 8, "cards": 6, "trump": "clubs", "hook": False}, 6),
    ("blob", {"players": 4, "cards": 4, "trump": "any", "any_cards": True}, 6),
    ("blob", {"players": 4, "cards": 3, "mode": "game"}, 2),
]


@pytest.mark.parametrize(("name", "params", "count"), RULES)
def test_a_position_is_its_notation_at_every_ply(name: str, params: dict[str, Any], count: int) -> None:
    game, rng = games.load(name, **params), random.Random(4)
    for _ in range(count):
        state, over = game.new_initial_state(), False
        while not over:
            again = game.state_from_notation(state.notation())
            assert (again.notation(), str(again)) == (state.notation(), str(state))
            assert (again.current_player(), again.returns()) == (state.current_player(), state.returns())
            assert again.legal_actions() == state.legal_actions()
            assert again.is_chance_node() == state.is_chance_node()
            if state.is_chance_node():
                assert again.chance_outcomes() == state.chance_outcomes()
            for player in range(game.num_players()):
                assert (again.packed_observation(player) == state.packed_observation(player)).all()
                if game.is_hidden():
                    assert again.information_state_string(player) == state.information_state_string(player)
            over = state.is_terminal()
            if not over:
                state.apply_action(rng.choice(state.legal_actions()))


@pytest.mark.parametrize(("name", "text", "rule"), [(name, *case) for name, cases in BROKEN.items() for case in cases])
def test_a_broken_line_is_refused_by_its_rule(name: str, text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        games.load(name).state_from_notation(text)
