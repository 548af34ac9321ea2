"""The nouns of the ledger: jobs and their leases, runs and their counts. Frozen values; no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from azq.errors import KeyReused, NotFound, meant
from azq.wire.messages import Job, RunRecord

ONCE_LIFE_S = 86_400  # of what a request is known to have created
RECENT = 10  # ended jobs that deciding about a run looks at, at most
KEPT_ENDED_JOBS = 200
KEPT_EVENTS = 2000
KEPT_PAUSES = 100

# Of games that kill their workers: see `lua/strikes.lua`.
SUSPECT = 2  # strikes
COMPANY = {2: 64, 3: 8}  # suspects of so many strikes that a lease plays together; with more strikes it plays one
SET_ASIDE = 7  # strikes: the last three of them alone

# Reasons
SET_ASIDE_REASON = "killed its worker 3 times while it was played alone, and never moved on"
WRITTEN_OFF = "written off: the run went on from its folder, which does not hold this game"
LOST_WITH_IT = "open games, arena results and history of before"  # with a control plane


class JobState(StrEnum):
    """queued -> leased -> done | failed | cancelled; an expired lease goes back to queued under the next attempt."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """created as running; paused and back; finished and failed are final for jobs, yet a finished run may be resumed."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"


TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.FINISHED, RunState.FAILED}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.FINISHED, RunState.FAILED}),
    RunState.FINISHED: frozenset({RunState.RUNNING}),
    RunState.FAILED: frozenset({RunState.RUNNING}),
}


class Directive(StrEnum):
    """What the ledger tells a worker after each journal write."""

    GO_ON = "go_on"
    RELEASE = "release"  # the run is paused or finished, or the job was cancelled: give the games back
    STALL = "stall"  # the limiter says self-play is ahead: give the games back


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as the ledger knows it."""

    job: Job
    state: JobState
    attempt: int  # 1 at the first publication; the fencing token
    owner: str
    lease_until_ms: int
    published_ms: int  # 0: enqueued, not yet handed to Celery
    created_ms: int
    claimed_ms: int
    ended_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's claim on a job; every commit names it and is refused once it was taken over."""

    job: Job
    attempt: int
    owner: str
    lease_s: float
    created_ms: int = 0  # the job was; 0: unknown
    published_ms: int = 0  # this attempt was; 0: unknown


@dataclass(frozen=True, slots=True)
class Effort:
    """What playing took, in numbers that only grow."""

    simulations: int = 0
    evaluations: int = 0  # leaves
    requests: int = 0  # they were evaluated in


@dataclass(frozen=True, slots=True)
class LearnerLease:
    """A process's claim to be a run's learner; its commits name the token and are refused once another took its place."""

    run: str
    holder: str  # as `azq.ledger.holder` names processes
    token: int
    life_s: float


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A request that must have its effect once, however often it is sent."""

    key: str  # names the request; hexadecimal
    fingerprint: str  # of its body; another one under the same key is refused

    @classmethod
    def of(cls, place: str, key: str, body: bytes) -> RequestKey:
        """A request to `place` under an idempotency key."""
        return cls(hashlib.sha256(f"{place}\n{key}".encode()).hexdigest(), hashlib.sha256(body).hexdigest())

    @staticmethod
    def reused() -> KeyReused:
        """The error for a key that was sent with another body."""
        return KeyReused("this Idempotency-Key was sent before with another body; nothing was changed; take a new key for a new request")


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as the ledger knows it."""

    record: RunRecord
    state: RunState
    reason: str
    active_ms: int  # time spent running, pauses left out
    changed_ms: int
    pauses: tuple[tuple[int, int], ...] = ()  # the newest: from when to when it did not run, be it paused or over
    changed_job: int = 0  # number of the newest job when the state changed last


@dataclass(frozen=True, slots=True)
class LedgerLoad:
    """How much a control plane has to do, over all runs."""

    running: int  # runs
    jobs: int  # queued and leased


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """The proof that nothing is lost: opened = finished + open + abandoned, finished = inserted + in transit."""

    opened: int
    finished: int
    open: int
    abandoned: int
    inserted: int
    in_transit: int  # finished, in the sample stream, not yet in the segment log
    duplicates_dropped: int
    written_off: int = 0  # of the abandoned: games that went with a lost control plane or folder
    simulations: int = 0  # of self-play so far, and the two below, as `Effort`
    evaluations: int = 0
    requests: int = 0

    @property
    def balanced(self) -> bool:
        """True when both sums hold."""
        return self.opened == self.finished + self.open + self.abandoned and self.finished == self.inserted + self.in_transit


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """One run with everything that deciding about it needs, at one moment."""

    view: RunView
    counts: LedgerCounts
    jobs: tuple[JobView, ...]  # queued and leased
    ended: tuple[JobView, ...]  # newest first: self-play jobs back to the last one that did not fail, `RECENT` at most


def split_job_id(job_id: str) -> tuple[str, int]:
    """Run and number of a job id, `<run>:<number>`. Raises `NotFound` for anything else."""
    run, separator, number = job_id.rpartition(":")
    if not separator or not run or not number.isascii() or not number.isdigit() or number.startswith("0"):
        raise NotFound(f"no job {job_id!r}; job ids look like connect_four:17")
    return run, int(number)


def no_run(name: str, there: Iterable[str]) -> NotFound:
    """The error for a run that is not there."""
    names = tuple(there)
    return NotFound(f"no run {name!r}{meant(name, names)}; there are: {', '.join(names) or 'none'}", name)
