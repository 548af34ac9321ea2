"""A run's way in four stages, which follow from what was recorded of it. Pure.

Spin-up lasts until its first game, fill until its first step of training, main until it is over, final until its last evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from azq.ledger.types import RunState, RunView

StageName = Literal["spin-up", "fill", "main", "final"]
Span = tuple[StageName, int, int | None]  # begin and end in ms; None: it lasts


@dataclass(frozen=True, slots=True)
class RunFirsts:
    """When a run was first seen to have a game, and to have trained; 0: not yet, or too long ago for what is kept."""

    game_ms: int = 0
    step_ms: int = 0


UNSEEN = RunFirsts()


@dataclass(frozen=True, slots=True)
class Evaluated:
    """How far evaluating a run is."""

    newest_ms: int  # when the newest result came; 0: there is none
    goes_on: bool = False  # jobs of it wait or run


@dataclass(frozen=True, slots=True)
class RunPause:
    """A time in which a run did not go on."""

    began_ms: int
    ended_ms: int | None  # None: it lasts


@dataclass(frozen=True, slots=True)
class RunStage:
    """A part of a run's way."""

    name: StageName
    began_ms: int
    ended_ms: int | None  # None: it lasts
    lasted_s: float  # so far, without its pauses
    pauses: tuple[RunPause, ...] = ()


def stages_of(view: RunView, firsts: RunFirsts, evaluated: Evaluated, now_ms: int) -> tuple[RunStage, ...]:
    """Those that have begun, in their order; what took no time, and what is not remembered, is left out."""
    over = view.state in (RunState.FINISHED, RunState.FAILED)
    end_ms = view.changed_ms if over else None
    pauses = [RunPause(*pause) for pause in view.pauses]
    if view.state is RunState.PAUSED:
        pauses.append(RunPause(view.changed_ms, None))
    spans = [*_spans(view.record.created_ms, firsts, end_ms)]
    if end_ms is not None and (evaluated.goes_on or evaluated.newest_ms > end_ms):
        spans.append(("final", end_ms, None if evaluated.goes_on else evaluated.newest_ms))
    return tuple(_stage(*span, pauses, now_ms) for span in spans)


def _spans(created_ms: int, firsts: RunFirsts, end_ms: int | None) -> Iterator[Span]:
    """Names, begins and ends of the stages up to the run's end."""
    begins: list[tuple[StageName, int]] = [("spin-up", created_ms)] if firsts.game_ms or not firsts.step_ms else []
    begins += [("fill", firsts.game_ms)] if firsts.game_ms else []
    begins += [("main", firsts.step_ms)] if firsts.step_ms else []
    reached = [(name, at) for name, at in begins if end_ms is None or at < end_ms]
    ends = [*(at for _, at in reached[1:]), end_ms]  # one too many where nothing was reached
    return ((name, begin, end) for (name, begin), end in zip(reached, ends, strict=False) if begin != end)


def _stage(name: StageName, began_ms: int, ended_ms: int | None, pauses: list[RunPause], now_ms: int) -> RunStage:
    until_ms = max(began_ms, now_ms if ended_ms is None else ended_ms)
    within = [
        RunPause(max(began_ms, pause.began_ms), pause.ended_ms if pause.ended_ms is None else min(pause.ended_ms, until_ms))
        for pause in pauses
        if pause.began_ms < until_ms and (pause.ended_ms is None or pause.ended_ms > began_ms)
    ]
    paused_ms = sum((until_ms if pause.ended_ms is None else pause.ended_ms) - pause.began_ms for pause in within)
    return RunStage(name, began_ms, ended_ms, (until_ms - began_ms - paused_ms) / 1000, tuple(within))
