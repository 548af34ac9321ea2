"""What the daemon may do about the difference between what is wanted and what is there. Frozen values; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from azq.ledger.types import JobView, RunState
from azq.wire.messages import GradeSpec, Job, MatchSpec


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
    """Start an evaluation round: one job for each match, one for the graded positions; some of the matches for browsers' tabs."""

    run: str
    tag: str
    weight_version: int
    specs: tuple[MatchSpec | GradeSpec, ...]
    for_tabs: tuple[MatchSpec, ...] = ()
    step: int = 0  # of these weights


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
    """Drop a job that nobody may start any more."""

    job_id: str


@dataclass(frozen=True, slots=True)
class EndRun:
    """End a run that reached its goal, or that failed and cannot go on."""

    run: str
    state: RunState
    reason: str


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


Action: TypeAlias = PublishJob | EnqueueJob | EnqueueEval | ExpireLeases | RequeueLost | CancelQueued | EndRun | ReportUnroutable
