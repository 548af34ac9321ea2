"""Packed observations, symmetries and replay."""

from __future__ import annotations

import random

import numpy as np
import pytest

from azq import games
from azq._core import Game, State
from azq.errors import IllegalActionError


def random_game(game: Game, rng: random.Random) -> State:
    state = game.new_initial_state()
    while not state.is_terminal():
        state.apply_action(rng.choice(state.legal_actions()))
    return state


def unpack(game: Game, packed: np.ndarray) -> np.ndarray:
    planes, rows, columns = game.observation_planes()
    bits = np.unpackbits(packed, bitorder="little")[: planes * rows * columns]
    return bits.reshape(planes, rows, columns).astype(np.float32)


@pytest.fixture(params=games.names())
def game(request: pytest.FixtureRequest) -> Game:
    return games.load(request.param)


def test_the_packed_observation_unpacks_to_the_tensor(game: Game) -> None:
    rng = random.Random(3)
    for _ in range(50):
        state = game.new_initial_state()
        while not state.is_terminal():
            packed = state.packed_observation()
            assert packed.shape == (game.packed_size(),)
            np.testing.assert_array_equal(unpack(game, packed), state.observation_tensor())
            state.apply_action(rng.choice(state.legal_actions()))


def test_symmetries_are_permutations_that_the_rules_keep(game: Game) -> None:
    _, rows, columns = game.observation_planes()
    images = []
    for symmetry in range(game.num_symmetries()):
        actions, cells = game.action_permutation(symmetry), game.plane_permutation(symmetry)
        assert sorted(actions) == list(range(game.num_distinct_actions()))
        assert sorted(cells) == list(range(rows * columns))
        images.append(tuple(actions))
    assert images[0] == tuple(range(game.num_distinct_actions()))
    assert len(set(images)) == game.num_symmetries()
    with pytest.raises(IndexError):
        game.action_permutation(game.num_symmetries())


def test_replay_gives_what_stepping_gives(game: Game) -> None:
    rng = random.Random(5)
    for _ in range(20):
        final = random_game(game, rng)
        packed, masks, players, returns = game.replay(np.array(final.history(), np.uint16))
        state = game.new_initial_state()
        for ply, action in enumerate(final.history()):
            if state.is_chance_node():
                assert not packed[ply].any()
                assert not masks[ply].any()
            else:
                np.testing.assert_array_equal(packed[ply], state.packed_observation())
                assert masks[ply].tolist() == state.legal_actions_mask()
            assert players[ply] == state.current_player()
            state.apply_action(action)
        assert returns.tolist() == final.returns()
        assert not game.replay(np.array(final.history()[:-1], np.uint16))[3].any()


def test_replay_of_nothing_is_empty(game: Game) -> None:
    packed, masks, players, returns = game.replay(np.zeros(0, np.uint16))
    assert packed.shape == (0, game.packed_size())
    assert masks.shape == (0, game.num_distinct_actions())
    assert players.shape == (0,)
    assert returns.tolist() == [0.0] * game.num_players()


def test_replay_names_the_ply_of_an_illegal_action() -> None:
    with pytest.raises(IllegalActionError, match="action 4 is illegal at ply 2"):
        games.load("tic_tac_toe").replay(np.array([4, 0, 4], np.uint16))
