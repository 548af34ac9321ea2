"""What games say of their game's fairness, against figures counted by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from azq import games
from azq.errors import NotFound
from azq.status.balance import balance

FIRST = ((0, 3, 1, 4, 2), (1.0, -1.0))
DRAWN = ((0, 1, 2, 4, 3, 5, 7, 6, 8), (0.0, 0.0))
SECOND = ((0, 3, 1, 4, 8, 5), (-1.0, 1.0))


def events(*played: tuple[tuple[int, ...], tuple[float, ...]], random_plies: int = 0) -> list[Any]:
    def record(actions: tuple[int, ...]) -> Any:
        simulations = np.where(np.arange(len(actions)) < random_plies, 0, 16)
        return SimpleNamespace(actions=np.array(actions, "<u2").tobytes(), simulations=simulations.astype("<u2").tobytes())

    return [SimpleNamespace(record=record(actions), returns=returns) for actions, returns in played]


def test_figures_are_those_counted_by_hand() -> None:
    found = balance(games.load("tic_tac_toe"), events(FIRST, DRAWN, SECOND))
    assert (found.games, found.first.share, found.draws) == (3, 0.5, pytest.approx(1 / 3))
    assert [seat.share for seat in found.seats] == [0.5, 0.5]
    assert found.first.low < 0.5 < found.first.high
    assert found.length == [5, 5, 6, 9, 9]
    assert found.forced == pytest.approx(1 / 20)  # the last cell of the full board
    assert (found.never_legal, found.never_played) == ([], [])
    assert [(each.actions, each.share) for each in found.commonest] == [([0, 3], pytest.approx(2 / 3)), ([0, 1], pytest.approx(1 / 3))]
    assert [each.share for each in found.trend] == [1.0, 0.5, 0.0]


def test_games_that_random_plies_began_say_nothing_of_fairness() -> None:
    rules, drifted = games.load("tic_tac_toe"), events(*[SECOND] * 8, random_plies=2)
    found = balance(rules, drifted + events(FIRST, FIRST, DRAWN))
    assert (found.games, found.first.games, found.first.share, found.draws) == (11, 3, pytest.approx(5 / 6), pytest.approx(1 / 3))
    assert [each.games for each in found.trend] == [1, 1, 1]
    assert found.length[0] == 5  # lengths, actions and openings are those of all games
    assert found.commonest[0].share == pytest.approx(10 / 11)
    assert balance(rules, drifted).first.games == 8  # no others are there


def test_actions_that_nobody_chose_are_named() -> None:
    assert balance(games.load("tic_tac_toe"), events(FIRST)).never_played == [5, 6, 7, 8]


def test_slices_go_from_old_to_new() -> None:
    found = balance(games.load("tic_tac_toe"), events(*[SECOND] * 5, *[FIRST] * 5))
    assert [(each.games, each.share) for each in found.trend] == [(2, 0.0), (2, 0.0), (2, 0.5), (2, 1.0), (2, 1.0)]


def test_without_games_there_is_nothing_to_tell() -> None:
    with pytest.raises(NotFound, match="no finished games"):
        balance(games.load("tic_tac_toe"), [])
