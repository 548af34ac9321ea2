"""What the daemon may do about the difference between what is wanted and what is there. Frozen values; no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from azq.ledger.types import JobView, RunState
from azq.status.state import Offering
from azq.status.workers import live_tags
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
    seen_ms: int = 0  # when its state was set that this was decided from; a run may be made again under its name


@dataclass(frozen=True, slots=True)
class Promote:
    """Note what became of a version, unless another decision came `after` the one that this was based on."""

    run: str
    event: PromotionEvent
    after: str  # id of the newest promotion


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, and no deed: a queue without workers, a budget that is nearly spent, a process that dies again and again."""

    kind: Literal["unroutable", "budget", "crash_loop"]  # as in the log
    run: str  # empty: the whole fleet
    about: str  # what makes it the same condition while its words change
    text: str = field(default="", compare=False)  # empty: `about` is

    def __str__(self) -> str:
        return self.text or self.about


def unroutable(run: str, queue: str, offers: Sequence[Offering]) -> Condition:
    """Jobs of a run ask for a hardware tag that no live worker has."""
    kind, _, tag = queue.partition(".")
    there = ", ".join(live_tags(offers, kind)) or "none"
    remedy = f"start `azq worker --queues {queue}` on a {tag} host"
    return Condition("unroutable", run, queue, f"run {run}: no live worker takes {queue} (live {kind} tags: {there}); {remedy}")


@dataclass(frozen=True, slots=True)
class EndFleet:
    """Tell all machines to end, for there is nothing left to do that may be paid for."""

    reason: str


Action: TypeAlias = (
    PublishJob | EnqueueJob | EnqueueEval | ExpireLeases | RequeueLost | CancelQueued | EndRun | Promote | EndFleet | Condition
)
