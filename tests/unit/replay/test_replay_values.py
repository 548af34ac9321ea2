"""Value targets: seats and movers, and TD(lambda) returns against the recursion written plainly for one game."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.replay.samples import SearchedPlies, lambda_returns, seat_values, values_by_seat


@given(st.integers(3, 8), st.integers(0, 7), st.data())
def test_seat_values_are_a_rotation_that_no_sign_touches(players, mover, data):
    returns = np.array(data.draw(st.lists(st.floats(-1, 1, width=32), min_size=players, max_size=players)), np.float32)
    mover %= players
    (values,) = seat_values(returns, np.array([mover]), players)
    assert values.tolist() == returns.tolist()[mover:] + returns.tolist()[:mover]


@pytest.mark.parametrize(("players", "value_size"), [(1, 1), (2, 1), (2, 2), (4, 4)])
def test_values_by_seat_is_the_way_back(players, value_size):
    rng = np.random.default_rng(0)
    values, movers = rng.uniform(-1, 1, (50, value_size)).astype(np.float32), rng.integers(0, players, 50)
    by_seat = values_by_seat(values, movers, players)
    assert np.array_equal(seat_values(by_seat, movers, value_size, np.arange(50)), values)
    if players == 2 and value_size == 1:
        assert np.array_equal(by_seat[:, 0], -by_seat[:, 1])


def plainly(result, thought, td_lambda):
    """One game's returns by seat, last ply first."""
    worth = [np.asarray(result, np.float64)]
    for ply in range(len(thought) - 2, -1, -1):
        worth.insert(0, td_lambda * worth[0] + (1 - td_lambda) * thought[ply + 1])
    return worth


@st.composite
def played(draw):
    """Some games: players, movers of each searched ply, the plies, and the length of each game."""
    players = draw(st.sampled_from([1, 2, 4]))
    games = []
    for _ in range(draw(st.integers(1, 4))):
        searched = draw(st.lists(st.booleans(), min_size=1, max_size=12))
        if any(searched):  # a game may have no searched ply, and then it has no row
            games.append((len(searched), [ply for ply, one in enumerate(searched) if one]))
    return players, games, draw(st.integers(0, 2**32 - 1))


@given(played(), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_lambda_returns_are_the_plain_recursion_of_each_game(setting, td_lambda):
    players, shapes, seed = setting
    rng = np.random.default_rng(seed)
    value_size = 1 if players < 3 else players
    lengths = np.array([length for length, _ in shapes], int)
    begins = np.cumsum(lengths) - lengths
    of = np.repeat(np.arange(len(shapes)), [len(plies) for _, plies in shapes])
    ply = np.array([begins[game] + ply for game, (_, plies) in enumerate(shapes) for ply in plies], int)
    rows = SearchedPlies(of, ply, rng.integers(0, players, len(of)))
    returns = rng.uniform(-1, 1, (len(shapes), players)).astype(np.float32)
    returns[:, 1:] = -returns[:, :1] if players == 2 else returns[:, 1:]
    roots = rng.uniform(-1, 1, (len(of), value_size)).astype(np.float32)
    found = lambda_returns(returns, roots, rows, td_lambda)
    by_seat = values_by_seat(roots, rows.mover, players)
    for game, (_, plies) in enumerate(shapes):
        wanted = plainly(returns[game], by_seat[of == game], td_lambda)
        assert found[of == game] == pytest.approx(seat_values(np.array(wanted), rows.mover[of == game], value_size, np.arange(len(plies))))


def test_with_two_players_the_next_ply_counts_for_the_other_side():
    rows = SearchedPlies(np.zeros(3, int), np.arange(3), np.array([0, 1, 1]))  # who moved second moves again, as after a pass
    roots = np.array([[0.1], [0.5], [-0.25]], np.float32)
    found = lambda_returns(np.array([[1.0, -1.0]], np.float32), roots, rows, 0.0)
    assert found[:, 0].tolist() == [-0.5, -0.25, -1.0]
