"""How many games a group holds, from what its evaluations took."""

from __future__ import annotations

import pytest

from azq.actor.groups import FEWEST_GAMES, FIRST_GAMES, Width


def settled(width: Width, slots: int, game_s: float, fixed_s: float = 0.0) -> int:
    """What it comes to where an evaluation takes so long a game and so long besides."""
    for _ in range(200):
        games = width.games(slots)
        width.answered(games, fixed_s + game_s * games)
    return width.games(slots)


def test_without_a_time_as_many_as_there_are_slots() -> None:
    width = Width(0.0)
    assert width.games(512) == 512
    width.answered(512, 10.0)
    assert width.games(512) == 512


@pytest.mark.parametrize(("game_s", "expected"), [(0.0001, 250), (0.00001, 512), (0.01, FEWEST_GAMES)])
def test_it_comes_to_the_games_that_are_evaluated_in_time(game_s: float, expected: int) -> None:
    width = Width(0.025)
    assert width.games(512) == FIRST_GAMES
    assert settled(width, 512, game_s) == pytest.approx(expected, abs=1)


def test_what_a_request_costs_whatever_it_holds_is_part_of_its_time() -> None:
    games = settled(Width(0.025), 512, 0.0001, fixed_s=0.005)
    assert games == pytest.approx(200, abs=2)  # 5 ms and 200 times 0.1 ms


def test_there_are_never_more_than_slots_nor_fewer_than_one() -> None:
    width = Width(0.025)
    assert width.games(8) == 8
    width.answered(8, 100.0)
    assert width.games(8) == 8
    assert width.games(1) == 1


def test_one_late_answer_is_soon_forgotten() -> None:
    width = Width(0.025)
    before = settled(width, 512, 0.0001)
    width.answered(before, 5.0)
    assert width.games(512) < before / 2
    assert settled(width, 512, 0.0001) == before
