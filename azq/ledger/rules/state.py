"""The state of one run of the ledger as a value, and the steps that several rules share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from azq.errors import LeaseLost, NotFound, meant
from azq.ledger.types import Effort, JobState, JobView, Lease, RunState
from azq.wire.kinds import MAKES_GAMES
from azq.wire.messages import GameRecord, RunRecord

KEPT_ENDED_JOBS = 200
KEPT_EVENTS = 2000
KEPT_PAUSES = 100
NO_EFFORT = Effort()


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job with what only the rules see of it."""

    view: JobView
    failures: int = 0  # leases that ended badly
    cancel: bool = False  # its worker is to be told
    released: bool = False  # its last owner ended it well
    held: frozenset[int] = frozenset()
    worked: tuple[int, Effort] = (0, NO_EFFORT)  # an attempt, and what is counted of it


@dataclass(frozen=True, slots=True)
class LearnerRow:
    """Who may learn, and until when nobody else may; the token grows with each taking."""

    holder: str = ""
    token: int = 0
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class State:
    record: RunRecord
    changed_ms: int
    state: RunState = RunState.RUNNING
    reason: str = ""
    active_ms: int = 0
    pauses: tuple[tuple[int, int], ...] = ()  # from when to when it did not run, oldest first
    changed_job: int = 0
    opened: int = 0
    finished: int = 0
    inserted: int = 0
    duplicates_dropped: int = 0
    written_off: int = 0  # of the abandoned
    restored: int = 0  # times that the run went on from its folder
    job_seq: int = 0
    open: Mapping[int, GameRecord] = field(default_factory=dict)
    pool: tuple[int, ...] = ()
    abandoned: Mapping[int, str] = field(default_factory=dict)
    jobs: Mapping[int, JobRow] = field(default_factory=dict)
    queue: tuple[tuple[int, int], ...] = ()  # (time of publication or creation, number) of jobs not ended, sorted as the server does
    ended: tuple[int, ...] = ()  # newest first
    learner: LearnerRow = field(default_factory=LearnerRow)
    strikes: Mapping[int, int] = field(default_factory=dict)  # of open games: leases that ended badly since they moved last
    work: Effort = NO_EFFORT
    sound: bool = False  # a game moved since a lease ended badly; kept while there are strikes

    @property
    def waiting(self) -> tuple[int, ...]:
        """Numbers of the jobs not ended, longest published first."""
        return tuple(number for _, number in self.queue)


def lease_ms(lease_s: float) -> int:
    """A lease's length in whole milliseconds, at least one."""
    return max(1, round(lease_s * 1000))


def number_of(lease: Lease) -> int:
    return int(lease.job.job_id.rpartition(":")[2])


def may_work(state: State, row: JobRow) -> bool:
    return state.state is RunState.RUNNING or (state.state is RunState.FINISHED and row.view.job.kind not in MAKES_GAMES)


def is_active(row: JobRow) -> bool:
    return row.view.state in (JobState.QUEUED, JobState.LEASED)


def row_of(state: State, number: int) -> JobRow:
    if number not in state.jobs:
        raise no_job(state.record.run, number)
    return state.jobs[number]


def no_job(run: str, number: int) -> NotFound:
    return NotFound(f"no job {run}:{number}; only the newest {KEPT_ENDED_JOBS} ended jobs of a run are kept")


def no_run(name: str, there: Iterable[str]) -> NotFound:
    known = tuple(there)
    return NotFound(f"no run {name!r}{meant(name, known)}; there are: {', '.join(known) or 'none'}", name)


def leased_row(state: State, lease: Lease) -> tuple[int, JobRow]:
    number = number_of(lease)
    row = state.jobs.get(number)
    if row is None or (row.view.state, row.view.attempt, row.view.owner) != (JobState.LEASED, lease.attempt, lease.owner):
        raise LeaseLost(f"{lease.owner} lost job {lease.job.job_id}, attempt {lease.attempt}; nothing was committed")
    return number, row


def all_held(state: State, lease: Lease, uids: Sequence[int]) -> tuple[int, JobRow]:
    number, row = leased_row(state, lease)
    for uid in uids:
        if uid not in row.held:
            raise LeaseLost(f"{lease.owner} does not hold game {uid} in job {lease.job.job_id}; nothing was committed")
    return number, row


def ended_by(state: State, lease: Lease) -> bool:
    row = state.jobs.get(number_of(lease))
    return row is not None and row.released and (row.view.attempt, row.view.owner) == (lease.attempt, lease.owner)


def end_job(state: State, now_ms: int, number: int, how: JobState, error: str) -> State:
    state = put(state, number, seen(state.jobs[number], state=how, ended_ms=now_ms, error=error))
    ended = (number, *state.ended)
    kept = {key: row for key, row in state.jobs.items() if key not in ended[KEPT_ENDED_JOBS:]}
    return replace(state, jobs=kept, ended=ended[:KEPT_ENDED_JOBS], queue=tuple(item for item in state.queue if item[1] != number))


def put(state: State, number: int, row: JobRow) -> State:
    return replace(state, jobs={**state.jobs, number: row})


def seen(row: JobRow, **changes: object) -> JobRow:
    return replace(row, view=replace(row.view, **changes))  # type: ignore[arg-type]


def next_attempt(row: JobRow) -> JobRow:
    """A queued job whose message is lost: one of the attempt before that comes after all is refused."""
    return seen(row, attempt=row.view.attempt + 1, published_ms=0)


def queued(state: State, number: int, at_ms: int) -> tuple[tuple[int, int], ...]:
    others = [item for item in state.queue if item[1] != number]
    return tuple(sorted([*others, (at_ms, number)], key=lambda item: (item[0], str(item[1]))))
