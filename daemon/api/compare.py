"""Runs beside each other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray

from azq.errors import NotFound
from azq.games import Game
from azq.ledger.records import sections_of
from azq.ledger.types import RunView
from azq.samples.diff import SamplesDiff, diff
from azq.samples.played import ROW, read_games
from azq.status.compare import RunComparison, checked, compare, same_game
from azq.status.curves import read_course
from daemon.api.access import READ
from daemon.api.recorded import rules_of, segments_of
from daemon.api.services import Services, Use

router = APIRouter(prefix="/v1/compare", tags=["runs"])
Runs = Annotated[str, Query(max_length=600, description="Two names of runs of one game, or more, with commas.")]


@router.get("", dependencies=[READ])
def compare_runs(
    use: Use,
    runs: Runs,
    by: Annotated[Literal["minutes", "games", "steps", "cpu-s"], Query(description="What the curves are drawn over.")] = "minutes",
) -> RunComparison:
    """Losses, graded errors and Elo of runs over one axis, their figures where all were, settings that differ, graded positions."""
    return compare([read_course(use.ledger, use.bus, name, use.standings) for name in checked(runs.split(","))], by)


@router.get("/samples", dependencies=[READ])
def compare_samples(
    use: Use, runs: Runs, games: Annotated[int, Query(ge=1, le=5_000, description="The newest so many of each.")] = 2_000
) -> dict[str, SamplesDiff]:
    """Whether the recorded games of each later run are of the same kind as those of the first; too few where logs are on other hosts."""
    names = checked(runs.split(","))
    known = [use.ledger.run(name) for name in names]
    for each in known:
        same_game(known[0].record, each.record)
    rules = rules_of(sections_of(known[0].record).run)
    first, *others = (_figures(use, rules, each, games) for each in known)
    return {name: diff(first, rows, match_versions=False) for name, rows in zip(names[1:], others, strict=True)}


def _figures(use: Services, rules: Game, known: RunView, games: int) -> NDArray[Any]:
    try:
        return read_games(rules, use.games_of(segments_of(known)).last(games)).rows
    except NotFound:
        return np.zeros(0, ROW)
