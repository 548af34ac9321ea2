"""How fast a run goes, from its counters at known moments of its active time."""

from __future__ import annotations

from typing import Any

import pytest

from azq.status.rates import Pace, latest, rates
from azq.status.workers import NetworkUse
from azq.wire.messages import HistoryPoint


def point(active_s: float, games: int = 0, **counters: Any) -> HistoryPoint:
    return HistoryPoint(0, active_ms=round(1000 * active_s), games=games, **counters)


@pytest.mark.parametrize(
    ("points", "now", "games_per_s"),
    [
        ([], point(4, 8), 2.0),
        ([point(5, 0), point(10, 1), point(15, 3), point(20, 4), point(25, 90)], point(30, 93), 6.0),
        ([point(0, 0), point(5, 0), point(10, 0), point(15, 9), point(20, 9)], point(20, 9), 0.6),
        ([point(1, 0), point(10, 4), point(20, 4), point(30, 4)], point(40, 4), pytest.approx(4 / 39)),
        ([point(10, 4), point(20, 4), point(30, 4)], point(40, 4), 0.0),
        ([point(100, 900), point(105, 20)], point(110, 25), 1.0),
        ([point(100, 900)], point(110, 25), 0.0),
        ([point(900, 1)], point(110, 25), 0.0),
        ([point(20, 5)], point(20, 5), 0.0),
        ([point(100, 50), point(104, 58)], point(108, 66), 2.0),
    ],
    ids=["begins", "over 15 s", "nothing just now", "seldom", "stands still", "fell", "fell just now", "again", "same moment", "short"],
)
def test_games_are_counted_over_some_time_and_from_no_fall_on(points: list[HistoryPoint], now: HistoryPoint, games_per_s: Any) -> None:
    assert rates(points, now).games_per_s == games_per_s


def test_every_rate_has_its_counter() -> None:
    before, now = point(0), point(20, 20, simulations=4_000, evaluations=2_000, requests=50, trained=640, step=10)
    assert rates([before], now) == Pace(1.0, 200.0, 100.0, 32.0, 0.5, 40.0, 0.0)
    assert rates([before], now, NetworkUse(256.0, 0.75)) == Pace(1.0, 200.0, 100.0, 32.0, 0.5, 256.0, 0.75)


def test_the_newest_point_is_told_as_it_is_until_it_is_old() -> None:
    newest = point(100, 50, games_per_s=7.0, mean_batch=3.0, steps_per_s=0.5)
    assert latest(newest, point(105, 60)) == Pace(games_per_s=7.0, mean_batch=3.0, steps_per_s=0.5)
    assert latest(newest, point(120, 90)).games_per_s == 2.0
    assert latest(None, point(10, 30)).games_per_s == 3.0
    older_azq = HistoryPoint(0, games=50, games_per_s=9.0)
    assert latest(older_azq, point(10, 60)).games_per_s == 6.0
