"""Runs beside each other: how far each is, their curves over one axis, what they have where all were, settings that differ. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from azq.errors import InvalidRequest, NotFound
from azq.ledger.types import RunState
from azq.status.curves import FIGURES, Course, Curves, Reached, value_at

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
class RunComparison:
    """Runs of one game over one axis."""

    game: str
    by: str
    runs: list[ComparedRun]
    common: list[CommonFigure]
    settings: list[SettingDifference]


def checked(names: Sequence[str]) -> Sequence[str]:
    """The names of runs, where so many can be compared. Raises `InvalidRequest`."""
    if not 2 <= len(set(names)) == len(names) <= MOST_RUNS:
        raise InvalidRequest(f"a comparison needs two to {MOST_RUNS} runs, each once, not {', '.join(names) or 'none'}")
    return names


def compare(courses: Sequence[Course], by: str) -> RunComparison:
    """The runs beside each other. Raises `InvalidRequest` for runs of different games, `NotFound` for one without records."""
    names = [course.view.record.run for course in courses]
    settings = [_settings(course) for course in courses]
    games = [values.get("run.game", "") for values in settings]
    params = [{name: value for name, value in values.items() if name.startswith("run.params.")} for values in settings]
    if len(set(games)) > 1 or any(each != params[0] for each in params):
        told = ", ".join(f"{name} learns {game} {each or ''}".strip() for name, game, each in zip(names, games, params, strict=True))
        raise InvalidRequest(f"runs of different games cannot be compared: {told}; name runs of one game")
    runs = [_compared(course, game, by) for course, game in zip(courses, games, strict=True)]
    return RunComparison(games[0], by, runs, _common(runs), _differing(settings))


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
    found = []
    for figure in FIGURES:
        curves = [run.curves.get(figure, []) for run in runs]
        if all(curves):
            x = min(curve[-1].x for curve in curves)
            values = [value_at(curve, x) for curve in curves]
            if None not in values:
                found.append(CommonFigure(figure, x, [value for value in values if value is not None]))
    return found


def _settings(course: Course) -> dict[str, Any]:
    return dict(flat(json.loads(course.view.record.sections)))


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[SettingDifference]:
    names = dict.fromkeys(name for values in settings for name in values)
    rows = [SettingDifference(name, [values.get(name) for values in settings]) for name in names]
    return [row for row in rows if any(value != row.values[0] for value in row.values)]


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested settings by their dotted names."""
    rows: list[tuple[str, Any]] = []
    for name, value in values.items():
        rows += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows
