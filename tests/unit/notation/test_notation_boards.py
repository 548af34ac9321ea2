"""Boards as people read them: with the names that moves are written in."""

from __future__ import annotations

import pytest

from azq import games
from azq.notation.boards import labelled


@pytest.mark.parametrize(
    ("name", "params", "wanted"),
    [
        ("othello", {"size": 6}, ["   abcdef", " 1 ......", " 6 ......"]),
        ("hex", {"size": 5}, ["   a b c d e", " 1 . . . . .", " 5     . . . . ."]),
        ("connect_four", {}, [".......", "0123456"]),
    ],
)
def test_a_board_tells_the_names_that_moves_are_written_in(name, params, wanted):
    game = games.load(name, **params)
    lines = labelled(game, game.new_initial_state()).split("\n")
    assert [lines[place] for place in ((0, 1, -1) if len(wanted) == 3 else (0, -1))] == wanted


@pytest.mark.parametrize("name", ["tic_tac_toe", "backgammon"])
def test_other_texts_stay_as_they_are(name):
    game = games.load(name)
    state = game.new_initial_state()
    assert labelled(game, state) == str(state).rstrip("\n")
