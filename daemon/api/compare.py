"""Runs beside each other."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from azq.status.compare import RunComparison, checked, compare
from azq.status.curves import read_course
from daemon.api.access import READ
from daemon.api.services import Use

router = APIRouter(prefix="/v1/compare", tags=["runs"])


@router.get("", dependencies=[READ])
def compare_runs(
    use: Use,
    runs: Annotated[str, Query(max_length=600, description="Two names of runs of one game, or more, with commas.")],
    by: Annotated[Literal["minutes", "games", "steps", "cpu-s"], Query(description="What the curves are drawn over.")] = "minutes",
) -> RunComparison:
    """Losses, graded errors and Elo of runs over one axis, their figures where all were, and the settings that differ."""
    return compare([read_course(use.ledger, use.bus, name, use.standings) for name in checked(runs.split(","))], by)
