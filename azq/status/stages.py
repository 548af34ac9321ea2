"""A run's way in four stages, which follow from what was recorded of it. Pure.

Spin-up lasts until its first game, fill until its first step of training, main until it is over, final until its last evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from azq.ledger.types import RunState, RunView
from azq.wire.messages import GradeResult, HistoryPoint, MatchResult, WeightEvent

OVER = (RunState.FINISHED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class RunFirsts:
    """When a run was first seen to have played a game, and to have trained; 0: not yet, or nobody remembers."""

    played_ms: int = 0
    trained_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunPause:
    """A time in which a run did not go on."""

    began_ms: int
    ended_ms: int | None  # None: it lasts


@dataclass(frozen=True, slots=True)
class RunStage:
    """A part of a run's way."""

    name: Literal["spin-up", "fill", "main", "final"]
    began_ms: int
    ended_ms: int | None  # None: it lasts
    lasted_s: float  # so far, without its pauses
    pauses: tuple[RunPause, ...] = ()

    @property
    def paused_s(self) -> float:
        """The sum of the pauses that are over."""
        return sum(pause.ended_ms - pause.began_ms for pause in self.pauses if pause.ended_ms is not None) / 1000


def firsts_of(points: Iterable[HistoryPoint], before: RunFirsts = RunFirsts()) -> RunFirsts:  # noqa: B008
    """What is known after these points of a run's history, oldest first."""
    played_ms, trained_ms = before.played_ms, before.trained_ms
    for point in points:
        if point.games or point.samples or point.step:
            played_ms = played_ms or point.at_ms
        if point.step:
            return RunFirsts(played_ms, trained_ms or point.at_ms)
    return RunFirsts(played_ms, trained_ms)
