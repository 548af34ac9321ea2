"""Backgammon's rules on positions made for them, each with the answer in words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from azq import games
from azq.arena.engines.gnubg import write_position_id
from azq.errors import ConfigError
from azq.games import State

GAME = games.load("backgammon")
BAR = 25


def side(points: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(points.get(point, 0) for point in range(1, BAR + 1))


def place(own: Mapping[int, int], other: Mapping[int, int], dice: str, tail: str = "") -> State:
    """Checkers by point, each player's in his own numbering; those not named are borne off."""
    return GAME.state_from_notation(f"{write_position_id((side(own), side(other)), on_roll=True)}:{dice}{tail}")


def legal(state: State) -> list[str]:
    return [state.action_to_string(action)[2:] for action in state.legal_actions()]


def play(state: State, *moves: str) -> State:
    for move in moves:
        state.apply_action(state.legal_actions()[legal(state).index(move)])
    return state


@pytest.mark.parametrize("tail", ["", ":p1"])
def test_the_value_follows_the_actor_in_the_middle_of_a_double(tail: str) -> None:
    """Four micro-moves by one player: the win is his, whatever the depth it is found at."""
    for checkers in (1, 2, 3, 4):
        state = place({1: checkers}, {1: 15}, "11", tail)
        mover = state.current_player()
        play(state, *["1/off"] * checkers)
        assert state.is_terminal()
        assert state.returns()[mover] == pytest.approx(2 / 3)
        assert state.returns()[1 - mover] == pytest.approx(-2 / 3)


@pytest.mark.parametrize(
    ("other", "points"), [({1: 14}, 1), ({1: 15}, 2), ({18: 1, 1: 14}, 2), ({19: 1, 1: 14}, 3), ({BAR: 1, 1: 14}, 3), ({BAR: 1, 1: 13}, 1)]
)
def test_gammons_and_backgammons(other: dict[int, int], points: int) -> None:
    for scoring, most in (("full", 3), ("gammons", 2), ("winloss", 1)):
        line = write_position_id((side({1: 1}), side(other)), on_roll=True)
        state = play(games.load("backgammon", scoring=scoring).state_from_notation(f"{line}:21"), "1/off")
        assert state.returns() == pytest.approx([min(points, most) / most, -min(points, most) / most])


def test_both_on_the_bar_is_refused_only_where_both_boards_are_closed() -> None:
    closed = {**dict.fromkeys(range(1, 7), 2), BAR: 1}
    with pytest.raises(ConfigError, match="both players on the bar against closed boards"):
        place(closed, closed, "31")
    # Entering one of two checkers may hit: then the other is still there, behind a board that may be closed.
    assert legal(place({BAR: 1, 13: 5}, {**closed, 24: 1}, "31")) == ["passes"]


def test_an_observation_tells_what_is_legal_and_nothing_of_seats() -> None:
    first = place({24: 2, 13: 5, 8: 3, 6: 5}, {24: 2, 13: 4, 8: 4, 6: 5}, "31")
    second = place({24: 2, 13: 5, 8: 3, 6: 5}, {24: 2, 13: 4, 8: 4, 6: 5}, "31", ":p1:t7")
    assert (first.packed_observation(0) == second.packed_observation(1)).all()
    rear, ahead = (place({24: 1, 23: 1, 6: 5}, {4: 1}, "11", f":u111:s{source}") for source in (24, 6))
    assert legal(rear) != legal(ahead)
    assert (rear.packed_observation() != ahead.packed_observation()).any()
    scalars = first.scalars(0).tolist()
    assert len(scalars) == 64
    assert scalars[48:52] == [0, 0, 0, 0]
    assert scalars[52:58] == [4, 0, 4, 0, 0, 0]
    assert scalars[58:63] == [0, 8, 16, 16, 16]
