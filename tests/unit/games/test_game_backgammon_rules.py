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


@pytest.mark.parametrize(
    ("own", "other", "dice", "moves"),
    [
        ({24: 1}, {12: 2, 2: 2}, "65", ["24/18"]),  # either die plays, not both: the larger
        ({24: 1}, {12: 2, 7: 2}, "65", ["24/19"]),  # the larger is blocked
        ({5: 1}, {1: 1}, "61", ["5/4"]),  # the last checker may not leave by one die where both can be played
        ({3: 1}, {24: 1}, "65", ["3/off"]),  # one checker, one die: the larger
        ({BAR: 1, 6: 3}, {1: 2}, "61", ["bar/19"]),  # from the bar first
        ({BAR: 2, 6: 3}, {1: 2, 3: 2}, "31", ["passes"]),
        ({BAR: 2, 6: 3}, {1: 2}, "61", ["bar/19"]),  # one enters, the other stays
        ({6: 1, 3: 1}, {1: 1}, "54", ["6/2", "6/1"]),  # nothing leaves from 3 while 6 is held
        ({7: 1, 3: 1}, {1: 1}, "64", ["7/3", "7/1"]),  # nor while one is not home
        ({6: 1, 2: 2}, {1: 1}, "64", ["6/2", "6/off"]),
        ({4: 2, 2: 1}, {1: 1}, "65", ["4/off", "4/off"]),  # from the highest point below the dice
        ({8: 1}, {19: 2}, "22", ["passes"]),
        ({13: 1, 8: 1}, {15: 1}, "32", ["8/6", "8/5", "13/11", "13/10*"]),  # a single checker is hit
    ],
)
def test_legal_are_the_moves_that_begin_a_whole_turn(own: dict[int, int], other: dict[int, int], dice: str, moves: list[str]) -> None:
    assert legal(place(own, other, dice)) == moves


def test_no_die_alone_decides() -> None:
    """Both dice can be moved from 13 at first; only by 7 or only by 10 the other can follow."""
    assert legal(place({13: 1}, {18: 2, 2: 2}, "63")) == ["13/10"]  # 7 is closed
    assert legal(place({13: 1}, {21: 2}, "63")) == ["13/7"]  # 4 is closed: one die alone, the larger
    # 13/7 plays a die that may be played, and is no legal move: 4 and 17 are closed, so no 3 could follow.
    assert legal(place({13: 1, 20: 1}, {21: 2, 8: 2}, "63")) == ["13/10", "20/14"]


def test_a_double_goes_from_the_rear_and_its_player_stays() -> None:
    state = place({24: 2, 13: 5, 8: 3, 6: 5}, {24: 2, 13: 5, 8: 3, 6: 5}, "11", ":p1")
    assert state.current_player() == 1
    play(state, "8/7")
    assert legal(state) == ["6/5", "7/6", "8/7"]
    play(state, "6/5")
    assert (legal(state), state.current_player()) == (["5/4", "6/5"], 1)
    play(state, "6/5", "5/4")
    assert state.is_chance_node()


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
