"""The daemon's nouns: what operators want, what is there, and what to do about the difference. Frozen values; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from azq.config import RunSections
from azq.ledger.types import JobView, LedgerCounts, RunState
from azq.wire.messages import GradeSpec, Heartbeat, LearnerStatus, MatchSpec

SELFPLAY = "selfplay"
EVAL = "eval"


def queue_of(kind: str, tag: str) -> str:
    """The Celery queue of a job kind on a hardware tag, `selfplay.cpu`."""
    return f"{kind}.{tag}"


class Offering(Protocol):
    """Slots on some queues; a heartbeat fulfils it."""

    @property
    def queues(self) -> tuple[str, ...]: ...
    @property
    def slots(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """What all workers of the same queues offer together."""

    queues: tuple[str, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class DesiredRun:
    """One run as its operator wants it; `sections` is None where the stored ones do not parse, `unreadable` says why."""

    name: str
    state: RunState
    sections: RunSections | None
    until: Mapping[str, float] = field(default_factory=dict)
    changed_ms: int = 0  # when the state changed last
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Desired:
    """All runs of the control plane."""

    runs: tuple[DesiredRun, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """One run as it stands."""

    counts: LedgerCounts
    active_ms: int = 0
    jobs: tuple[JobView, ...] = ()  # queued and leased
    ended: tuple[JobView, ...] = ()  # newest first: self-play jobs back to the last one that did not fail, some at most
    learner: LearnerStatus | None = None  # None: no live learner
    weight_version: int = 0  # 0: none published yet
    round_version: int = 0  # weights of the newest evaluation round
    round_ms: int = 0  # when that round was asked for


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything the daemon looks at in one tick."""

    workers: tuple[Heartbeat, ...] = ()
    runs: Mapping[str, ObservedRun] = field(default_factory=dict)
    full_ms: Mapping[str, int] = field(default_factory=dict)  # queue -> when its workers were last all busy (or first seen)


@dataclass(frozen=True, slots=True)
class PublishJob:
    """Hand a queued job to Celery for the first time."""

    view: JobView


@dataclass(frozen=True, slots=True)
class EnqueueSelfplay:
    """Create one self-play job."""

    run: str
    tag: str
    games: int
    slice_s: float


@dataclass(frozen=True, slots=True)
class EnqueueEval:
    """Start an evaluation round: one job for each match, one for the graded positions."""

    run: str
    tag: str
    weight_version: int
    specs: tuple[MatchSpec | GradeSpec, ...]


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
class FinishRun:
    """End a run that reached its goal."""

    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class FailRun:
    """End a run that cannot go on."""

    run: str
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


Action: TypeAlias = (
    PublishJob | EnqueueSelfplay | EnqueueEval | ExpireLeases | RequeueLost | CancelQueued | FinishRun | FailRun | ReportUnroutable
)
