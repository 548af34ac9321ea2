"""Runs beside each other: how far each is, curves over one axis, figures where all were, settings that differ, graded positions. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from azq.config.loading import flat
from azq.errors import InvalidRequest, NotFound
from azq.ledger.types import RunState
from azq.ratings.positions import PositionMark
from azq.stats import paired_interval
from azq.status.curves import FIGURES, Course, Curves, Reached, value_at
from azq.wire.messages import GradeResult, RunRecord

MOST_RUNS = 8  # as many as charts have colours


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of the runs."""

    run: str
    game: str
    state: RunState
    weight_version: int
    reached: Reached
    curves: Curves


@dataclass(frozen=True, slots=True)
class CommonFigure:
    """A figure at the farthest place that all runs have reached with it; values in the order of the runs."""

    figure: str
    x: float
    values: list[float]


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting that is not the same everywhere; None where a run has none of that name."""

    setting: str
    values: list[Any]


@dataclass(frozen=True, slots=True)
class GradedPair:
    """The newest graded weights of the first run and of another one, on the positions that both were graded on; shares of errors."""

    run: str
    weight_versions: tuple[int, int]
    num_simulations: tuple[int, int]
    positions: int
    errors: tuple[float, float]
    difference: float  # the other's less the first's
    low: float | None  # of its 95 % interval; None for a single position
    high: float | None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Runs of one game over one axis."""

    game: str
    by: str
    runs: list[ComparedRun]
    common: list[CommonFigure]
    settings: list[SettingDifference]
    graded: list[GradedPair]  # as recorded; none where nothing was graded twice


def checked(names: Sequence[str]) -> Sequence[str]:
    """The names of runs, where so many can be compared. Raises `InvalidRequest`."""
    if not 2 <= len(set(names)) == len(names) <= MOST_RUNS:
        raise InvalidRequest(f"a comparison needs two to {MOST_RUNS} runs, each once, not {', '.join(names) or 'none'}")
    return names


def compare(courses: Sequence[Course], by: str) -> RunComparison:
    """The runs beside each other. Raises `InvalidRequest` for runs of different games, `NotFound` for one without records."""
    settings = [dict(flat(json.loads(course.view.record.sections))) for course in courses]
    for course in courses:
        same_game(courses[0].view.record, course.view.record)
    game = settings[0].get("run.game", "")
    runs = [_compared(course, game, by) for course in courses]
    return RunComparison(game, by, runs, _common(runs), _differing(settings), _graded(courses))


def same_game(first: RunRecord, other: RunRecord) -> None:
    """Raises `InvalidRequest` naming both games where they are not one."""
    runs = [json.loads(record.sections).get("run", {}) for record in (first, other)]
    games = [(run.get("game", ""), run.get("params")) for run in runs]
    if games[0] != games[1]:
        names = ", ".join(
            f"{record.run} learns {game} {params or ''}".strip() for record, (game, params) in zip((first, other), games, strict=True)
        )
        raise InvalidRequest(f"runs of different games cannot be compared: {names}; name runs of one game")


def _compared(course: Course, game: str, by: str) -> ComparedRun:
    name, curves = course.view.record.run, course.curves(by)
    if not curves:
        raise NotFound(f"nothing was recorded of run {name} that could be compared: it never trained; let it run first")
    reached = course.reached
    if not reached.on(by):
        raise NotFound(
            f"nothing was recorded of run {name} over {by}: it ran under an older azq, or never trained; compare by minutes or steps"
        )
    version = max((event.version for event in course.weights), default=0)
    return ComparedRun(name, game, course.view.state, version, reached, curves)


def _common(runs: Sequence[ComparedRun]) -> list[CommonFigure]:
    results = []
    for figure in FIGURES:
        curves = [run.curves.get(figure, []) for run in runs]
        if all(curves):
            x = min(curve[-1].x for curve in curves)
            values = [value_at(curve, x) for curve in curves]
            if None not in values:
                results.append(CommonFigure(figure, x, [value for value in values if value is not None]))
    return results


def _graded(courses: Sequence[Course]) -> list[GradedPair]:
    first, *others = (next((grade for grade in course.standing.grades if grade.marks), None) for course in courses)
    names = [course.view.record.run for course in courses[1:]]
    pairs = [first and other and _pair(name, first, other) for name, other in zip(names, others, strict=True)]
    return [pair for pair in pairs if pair]


def _pair(run: str, first: GradeResult, other: GradeResult) -> GradedPair | None:
    """None where they were graded on no position in common, or on those of another azq."""
    if len(first.marks) != len(other.marks):
        return None
    marks = np.array([list(first.marks), list(other.marks)])
    lost = (marks[:, marks.all(axis=0)] == PositionMark.LOST).astype(np.float64)
    if not lost.size:
        return None
    difference, low, high = paired_interval(lost[1] - lost[0])
    bounds = (low, high) if np.isfinite(low) else (None, None)
    shares = lost.mean(axis=1).tolist()
    graded = (first.weight_version, other.weight_version), (first.num_simulations, other.num_simulations)
    return GradedPair(run, *graded, lost.shape[1], (shares[0], shares[1]), difference, *bounds)


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[SettingDifference]:
    names = dict.fromkeys(name for values in settings for name in values)
    rows = [SettingDifference(name, [values.get(name) for values in settings]) for name in names]
    return [row for row in rows if any(value != row.values[0] for value in row.values)]
