"""Curves say what was recorded, where the run was when it was so."""

from __future__ import annotations

import dataclasses

import pytest
from run_courses import CREATED_MS, EVERY_MS, POINTS, courses

from azq.ratings.matches import put_together
from azq.stats import wilson
from azq.status.curves import MOST_POINTS, CurvePoint, value_at
from azq.status.strength import UNRATED, Standing
from azq.wire.messages import GradeResult, HistoryPoint, MatchResult, MatchSpec


def test_how_far_a_run_was_adds_up() -> None:
    (course,) = courses({"name": "first"})
    last = course.reached
    assert (last.games, last.steps) == (50 * POINTS, 5 * POINTS)
    assert last.minutes == pytest.approx(POINTS * EVERY_MS / 60_000)
    assert last.cpu_s == pytest.approx(1.5 * POINTS * EVERY_MS / 1000)


def test_a_pause_is_no_time_spent() -> None:
    (course,) = courses({"name": "first"})
    later = HistoryPoint(course.points[-1].at_ms + 3_600_000, games=7000, step=700)
    longer = dataclasses.replace(course, points=[*course.points, later])
    assert longer.reached.minutes == course.reached.minutes
    assert longer.reached.games == 7000


@pytest.mark.parametrize(("axis", "x"), [("minutes", 2.0), ("games", 1200.0), ("steps", 120.0), ("cpu-s", 180.0)])
def test_weights_stand_where_they_were_published(axis: str, x: float) -> None:
    (course,) = courses({"name": "first"})
    curves = course.curves(axis)
    assert set(curves) == {"errors", "elo", "loss_policy", "loss_value"}
    assert [point.weight_version for point in curves["errors"]] == [1, 2, 3, 4, 5]
    first = curves["errors"][0]
    assert first.x == pytest.approx(x)
    assert (first.y, first.low) == (0.25, pytest.approx(wilson(50, 200)[0]))
    assert [point.y for point in curves["elo"]] == sorted(point.y for point in curves["elo"])
    assert curves["loss_policy"][-1].y == 1.0


@pytest.mark.parametrize(
    ("game", "kind", "values", "bounds"),
    [
        ("backgammon", "loss", [50.0, 40.0], (None, None)),
        ("blob", "points", [-1.5, 2.5], (2.5 - 1.96 * 0.5, 2.5 + 1.96 * 0.5)),
        ("beasty_bar", "share", [0.25, 0.5], (0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05)),
    ],
)
def test_a_game_has_a_curve_of_what_it_is_judged_by(game: str, kind: str, values: list[float], bounds: tuple[float, float]) -> None:
    """In the headline's own unit; of several opponents that never change the one that is the newest weights' hardest."""
    (course,) = courses({"name": "first"})
    course = dataclasses.replace(
        course, view=dataclasses.replace(course.view, record=courses({"name": "first", "game": game})[0].view.record)
    )
    grades = [GradeResult(version, 64, 200, 0, 0, mean_loss=0.06 - 0.01 * version) for version in (2, 1)]
    played = [
        (2, "uct:100", 2.5, 0.5),
        (2, "random", 9.0, 0.9),
        (1, "random", 9.0, 0.9),
        (1, "uct:100", -1.5, 0.25),
        (2, "weights:1", 0.0, 0.0),
    ]
    matches = [
        MatchResult(
            MatchSpec("", other, 100, 64, 0, 0), f"weights:{version}", other, 100, 0, 0, 0, 4, share=share, points=points, points_se=0.5
        )
        for version, other, points, share in played
    ]
    curves = dataclasses.replace(course, standing=Standing(put_together(matches), grades)).curves("minutes")
    assert set(curves) == {kind, "loss_policy", "loss_value"}
    assert [point.y for point in curves[kind]] == pytest.approx(values)
    assert [(point.x, point.weight_version) for point in curves[kind]] == [(2.0, 1), (4.0, 2)]
    assert (curves[kind][-1].low, curves[kind][-1].high) == pytest.approx(bounds)


def test_a_figure_that_was_never_known_is_not_there() -> None:
    (course,) = courses({"name": "first"})
    bare = dataclasses.replace(course, standing=UNRATED, points=[HistoryPoint(CREATED_MS + 1, games=3)])
    assert bare.curves("minutes") == {}


def test_a_long_history_is_thinned_and_keeps_its_end() -> None:
    (course,) = courses({"name": "first"})
    long = [HistoryPoint(CREATED_MS + 1000 * number, step=number, loss_policy=number) for number in range(1, 1001)]
    curve = dataclasses.replace(course, points=long).curves("steps")["loss_policy"]
    assert len(curve) <= MOST_POINTS
    assert curve[-1].x == 1000.0


def test_between_two_points_goes_by_proportion() -> None:
    curve = [CurvePoint(0.0, 1.0), CurvePoint(2.0, 2.0), CurvePoint(2.0, 3.0)]
    assert [value_at(curve, x) for x in (0.0, 1.0, 2.0, 2.1)] == [1.0, 1.5, 2.0, None]
    assert value_at([CurvePoint(1.0, 5.0)], 1.0) == 5.0
