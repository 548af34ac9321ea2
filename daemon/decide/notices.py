"""What is worth a notice to an operator who does not watch: runs that ended, conditions that last. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from azq.ledger.types import RunState
from azq.status.state import DesiredRun
from daemon.decide.actions import Report

ENDS = (RunState.FINISHED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class Notice:
    """An event, as it is sent."""

    kind: str  # run.finished, run.failed, condition
    run: str  # "": the whole fleet
    text: str
    at_ms: int


def states_of(runs: Iterable[DesiredRun]) -> dict[str, RunState]:
    """What the next look is compared with."""
    return {run.name: run.state for run in runs}


def ends(before: Mapping[str, RunState], runs: Iterable[DesiredRun], now_ms: int) -> list[Notice]:
    """The runs that ended since the look before; what had ended when this daemon first looked is old."""
    ended = [run for run in runs if run.state in ENDS and before.get(run.name, run.state) is not run.state]
    return [Notice(f"run.{run.state}", run.name, f"run {run.name} {run.state}: {run.reason or 'no reason given'}", now_ms) for run in ended]


def lasting(report: Report, at_ms: int) -> Notice:
    """A condition that has lasted long enough for a notice."""
    return Notice("condition", report.run, str(report), at_ms)
