"""2048: rules, score and symmetries against a plain implementation."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.twenty_forty_eight import Plain, moved

from azq import games
from azq.errors import ConfigError
from azq.games.scores import value_of
from azq.notation.units import unit

GAME = games.load("2048")
TILES = st.lists(st.lists(st.sampled_from([0, 0, 2, 4, 8, 16, 32]), min_size=4, max_size=4), min_size=4, max_size=4)


def board_of(state: games.State) -> list[list[int]]:
    rows = state.notation().split(" ")[0].split("/")
    return [[0 if tile == "." else int(tile) for tile in row.split(",")] for row in rows]


def written(board: list[list[int]]) -> str:
    """A position with these tiles, as if they had all been placed as 2s."""
    moves = sum(map(sum, board)) // 2 - 2
    return "/".join(",".join(str(tile or ".") for tile in row) for row in board) + f" {moves} 0"


def score(state: games.State) -> int:
    return int(str(state).split("score ")[1])


@pytest.mark.parametrize("seed", range(12))
def test_random_games_agree_with_plain_lists_at_every_ply(seed: int) -> None:
    rng, max_moves = random.Random(seed), 60 if seed % 3 == 0 else 20_000
    state, plain = games.load("2048", max_moves=max_moves).new_initial_state(), Plain(max_moves)
    while not state.is_terminal():
        assert (state.current_player(), state.legal_actions()) == (plain.current_player(), plain.legal_actions())
        assert board_of(state) == plain.board
        if state.is_chance_node():
            assert state.chance_outcomes() == [(outcome, pytest.approx(chance, rel=1e-6)) for outcome, chance in plain.chance_outcomes()]
        assert score(state) == plain.score
        action = rng.choice(state.legal_actions())
        state.apply_action(action)
        plain.apply_action(action)
    assert plain.current_player() == state.current_player()
    assert unit(GAME).convert(state.returns()[0]) == pytest.approx(plain.score, rel=1e-5, abs=0.01)


@given(TILES)
def test_every_board_slides_as_plain_lists_do(board: list[list[int]]) -> None:
    if sum(map(sum, board)) < 6:
        return
    state = GAME.state_from_notation(written(board))
    legal = [action for action in range(4) if moved(board, action)[0] != board]
    assert state.legal_actions() == legal
    for action in legal:
        after = state.clone()
        after.apply_action(action)
        rows, scored = moved(board, action)
        assert board_of(after) == rows
        assert score(after) == score(state) + scored


@given(TILES, st.integers(0, 7))
def test_symmetries_turn_board_and_moves_alike(board: list[list[int]], symmetry: int) -> None:
    if sum(map(sum, board)) < 6:
        return
    cells, actions = GAME.plane_permutation(symmetry), GAME.action_permutation(symmetry)
    turned = np.array(board).ravel()[cells].reshape(4, 4).tolist()
    one, other = GAME.state_from_notation(written(board)), GAME.state_from_notation(written(turned))
    assert sorted(actions[one.legal_actions()].tolist()) == other.legal_actions()
    for action in one.legal_actions():
        after, image = one.clone(), other.clone()
        after.apply_action(action)
        image.apply_action(int(actions[action]))
        assert np.array(board_of(after)).ravel()[cells].tolist() == np.array(board_of(image)).ravel().tolist()


def test_observation_has_a_plane_a_tile() -> None:
    state = GAME.state_from_notation("2,.,.,4/.,.,.,./.,8,2,./32768,.,.,. 16000 0")
    planes = state.observation_tensor()
    assert planes.shape == (17, 4, 4)
    assert planes.sum() == 5
    assert planes[0, 0, 0] == planes[0, 2, 2] == planes[1, 0, 3] == planes[2, 2, 1] == planes[14, 3, 0] == 1


def test_the_core_and_python_scale_alike() -> None:
    scale = GAME.scores()
    assert scale == (0.0, 4194304.0, 256.0)
    state = GAME.state_from_notation("4,2,4,16/8,32,2,4/32,16,128,8/4,32,2,4 96 0")
    assert state.is_terminal()
    assert state.returns()[0] == pytest.approx(value_of(1096, scale), abs=1e-6)
    assert math.isclose(value_of(0, scale), -1)
    assert math.isclose(value_of(4_194_304, scale), 1)


def test_more_moves_than_the_game_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_moves"):
        games.load("2048", max_moves=20_001)
