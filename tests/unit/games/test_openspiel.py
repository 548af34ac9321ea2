"""Rules and observations against OpenSpiel, step by step over random games."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference.lockstep import lockstep

from azq import games

pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel, the independent oracle for the rules, is not installed")

GAMES = ("connect_four", "tic_tac_toe")
NAMED = (*GAMES, "othello")  # their actions have OpenSpiel's names
CASES: list[tuple[str, dict[str, Any], str, int]] = [
    *((name, {}, name, 1500) for name in GAMES),
    ("othello", {}, "othello", 400),
    *(("gomoku", {"size": size}, f"gomoku(size={size})", 10_000 // size**2) for size in (9, 11, 13, 15, 19)),
    *(
        ("hex", {"size": size, "swap": swap}, f"hex(board_size={size},swap={swap})", count)
        for size, swap, count in ((5, False, 600), (5, True, 600), (7, False, 80), (9, True, 40), (11, False, 30), (13, False, 15))
    ),
]
#: rows of OpenSpiel's text in azq's marks; in hex it shows by other letters which edges a stone is joined to
ROWS: dict[str, Callable[[str], list[str]]] = {
    "othello": lambda text: ["".join(line.split()[1:9]).replace("-", ".") for line in text.splitlines() if line[:1].isdigit()],
    "gomoku": lambda text: [line.translate(str.maketrans("bw", "xo")) for line in text.split() if set(line) <= set(".bw")],
    "hex": lambda text: text.translate(str.maketrans("yzXpqO", "xxxooo")).split(),
}


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.release)])
@pytest.mark.parametrize(("name", "params", "theirs", "count"), CASES)
def test_random_games_agree(name: str, params: dict[str, Any], theirs: str, count: int, times: int) -> None:
    ours, other = games.load(name, **params), pyspiel.load_game(theirs)
    assert (ours.num_distinct_actions(), ours.num_players()) == (other.num_distinct_actions(), other.num_players())
    assert name not in GAMES or ours.max_game_length() == other.max_game_length()
    for state, oracle in lockstep(ours, other, times * count, 11):
        assert str(state).split() == ROWS.get(name, str.split)(str(oracle))
        if oracle.is_terminal():
            assert state.history() == oracle.history()
            assert state.legal_actions_mask() == [0] * ours.num_distinct_actions()
        elif name in NAMED:
            action = oracle.legal_actions()[len(oracle.history()) % len(oracle.legal_actions())]
            assert state.action_to_string(action) == oracle.action_to_string(action)


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
