"""What the daemon may do about the difference between what is wanted and what is there. Frozen values; no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from azq.ledger.types import JobView, RunState
from azq.wire.messages import EvalRound, GradeSpec, Job, MatchSpec, PromotionEvent


@dataclass(frozen=True, slots=True)
class PublishJob:
    """Hand a queued job to Celery for the first time."""

    view: JobView


@dataclass(frozen=True, slots=True)
class EnqueueJob:
    """Create one job and hand it to Celery."""

    job: Job


@dataclass(frozen=True, slots=True)
class EnqueueEval:
    """Start an evaluation round: a job for each match or part of one, one for graded positions; some matches for browsers' tabs."""

    run: str
    tag: str
    noted: EvalRound  # what is remembered of it, so that it is requested once
    specs: tuple[MatchSpec | GradeSpec, ...]
    for_tabs: tuple[MatchSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpireLeases:
    """Take a run's jobs back from workers whose lease is over."""

    run: str


@dataclass(frozen=True, slots=True)
class RequeueLost:
    """Give a job a new attempt: its message was lost on the way."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CancelQueued:
    """Drop a job that may not start any more."""

    job_id: str


@dataclass(frozen=True, slots=True)
class EndRun:
    """End a run that reached its goal, or that failed and cannot go on."""

    run: str
    state: RunState
    reason: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Note what became of a version, unless another decision came `after` the one that this was based on."""

    run: str
    event: PromotionEvent
    after: str  # id of the newest promotion


@dataclass(frozen=True, slots=True)
class ReportUnroutable:
    """Jobs of a run ask for a hardware tag that no live worker has."""

    run: str
    queue: str
    live_tags: tuple[str, ...]

    def __str__(self) -> str:
        there = ", ".join(self.live_tags) or "none"
        kind, _, tag = self.queue.partition(".")
        remedy = f"start `azq worker --queues {self.queue}` on a {tag} host"
        return f"run {self.run}: no live worker takes {self.queue} (live {kind} tags: {there}); {remedy}"


@dataclass(frozen=True, slots=True)
class ReportSpent:
    """A budget is nearly spent: a run's, or where none is named the fleet's."""

    run: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ReportCrashLoop:
    """A process dies again and again; the same condition while its words change."""

    run: str  # that it works for alone
    who: str
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class EndFleet:
    """Tell all machines to end, for there is nothing left to do that may be paid for."""

    reason: str


Report: TypeAlias = ReportUnroutable | ReportSpent | ReportCrashLoop  # conditions, not deeds
Action: TypeAlias = PublishJob | EnqueueJob | EnqueueEval | ExpireLeases | RequeueLost | CancelQueued | EndRun | Promote | EndFleet | Report
