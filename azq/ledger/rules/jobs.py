"""Rules of jobs and leases: queued, leased, ended."""

from __future__ import annotations

from dataclasses import astuple, replace
from itertools import takewhile
from operator import add

import msgspec

from azq.errors import StateConflict
from azq.ledger.rules.state import (
    NO_EFFORT,
    JobRow,
    State,
    end_job,
    is_active,
    lease_ms,
    leased_row,
    may_work,
    next_attempt,
    put,
    queued,
    row_of,
    seen,
)
from azq.ledger.rules.strikes import is_suspect, strike
from azq.ledger.types import RECENT, Directive, Effort, JobState, JobView, Lease
from azq.wire.kinds import MAKES_GAMES
from azq.wire.messages import Job


def enqueue(state: State, now_ms: int, job: Job) -> tuple[State, JobView]:
    """A new job under the run's next number; `job.job_id` is filled in."""
    number = state.job_seq + 1
    named = msgspec.structs.replace(job, job_id=f"{state.record.run}:{number}")
    view = JobView(named, JobState.QUEUED, 1, "", 0, 0, now_ms, 0, 0, "")
    state = replace(state, job_seq=number, queue=queued(state, number, now_ms))
    return put(state, number, JobRow(view)), view


def mark_published(state: State, now_ms: int, number: int, attempt: int) -> State:
    """Notes a publication; too late, it changes nothing."""
    row = state.jobs.get(number)
    if row is None or row.view.attempt != attempt or not is_active(row):
        return state
    state = replace(state, queue=queued(state, number, now_ms))
    return put(state, number, seen(row, published_ms=now_ms))


def cancel(state: State, now_ms: int, number: int) -> State:
    """A queued job ends at once, a leased one when its worker hears of it. Raises `NotFound`, `StateConflict`."""
    row = row_of(state, number)
    if row.view.state is JobState.QUEUED:
        return end_job(state, now_ms, number, JobState.CANCELLED, "")
    if row.view.state is JobState.LEASED:
        return put(state, number, replace(row, cancel=True))
    raise StateConflict(f"job {row.view.job.job_id} is {row.view.state}; nothing was changed")


def claim(state: State, now_ms: int, number: int, attempt: int, owner: str, lease_s: float) -> tuple[State, Lease | None]:
    """A lease, or None where the attempt is stale, the job is not queued or the run does not want it now."""
    row = state.jobs.get(number)
    if row is None or row.view.state is not JobState.QUEUED or row.view.attempt != attempt or not may_work(state, row):
        return state, None
    leased = seen(row, state=JobState.LEASED, owner=owner, claimed_ms=now_ms, lease_until_ms=now_ms + lease_ms(lease_s))
    return put(state, number, leased), Lease(row.view.job, attempt, owner, lease_s)


def renew(state: State, now_ms: int, lease: Lease, *, stalled: bool) -> tuple[State, Directive]:
    """Lengthens a lease and says what its worker is to do. Raises `LeaseLost`."""
    number, row = leased_row(state, lease)
    state = put(state, number, seen(row, lease_until_ms=now_ms + lease_ms(lease.lease_s)))
    if row.cancel or not may_work(state, row):
        return state, Directive.RELEASE
    if stalled and row.view.job.kind in MAKES_GAMES:
        return state, Directive.STALL
    return state, Directive.GO_ON


def count_work(state: State, lease: Lease, work: Effort) -> State:
    """Counts what this attempt has done so far; what was counted of it before is not counted again. Raises `LeaseLost`."""
    number, row = leased_row(state, lease)
    known = astuple(row.worked[1] if row.worked[0] == lease.attempt else NO_EFFORT)
    now = Effort(*map(max, known, astuple(work)))
    more = (after - before for after, before in zip(astuple(now), known, strict=True))
    state = put(state, number, replace(row, worked=(lease.attempt, now)))
    return replace(state, work=Effort(*map(add, astuple(state.work), more)))


def expire(state: State, now_ms: int, max_attempts: int) -> tuple[State, list[JobView]]:
    """Ends every lease whose time is over."""
    leased = [number for number in state.waiting if state.jobs[number].view.state is JobState.LEASED]
    over = [number for number in leased if state.jobs[number].view.lease_until_ms <= now_ms]
    for number in over:
        state = end_lease(state, now_ms, number, f"the lease of {state.jobs[number].view.owner} ran out", max_attempts)
    return state, [state.jobs[number].view for number in over if number in state.jobs]


def requeue(state: State, now_ms: int, number: int, attempt: int) -> State:
    """The next attempt of a job whose message was lost. Raises `NotFound`, `StateConflict`."""
    row = row_of(state, number)
    if row.view.state is not JobState.QUEUED or row.view.attempt != attempt:
        raise StateConflict(f"job {row.view.job.job_id} is {row.view.state} under attempt {row.view.attempt}; nothing was changed")
    return put(state, number, next_attempt(row))


def fail(state: State, now_ms: int, lease: Lease, error: str, max_attempts: int) -> State:
    """Ends a lease badly. Raises `LeaseLost`."""
    number, _ = leased_row(state, lease)
    return end_lease(state, now_ms, number, error, max_attempts)


def recent(state: State) -> tuple[JobView, ...]:
    """The newest ended jobs that make games, back to the last one that did not fail."""
    views = [state.jobs[number].view for number in state.ended[:RECENT]]
    makers = [view for view in views if view.job.kind in MAKES_GAMES]
    failed = list(takewhile(lambda view: view.state is JobState.FAILED, makers))
    return tuple(makers[: len(failed) + 1])


def give_back(state: State, number: int) -> State:
    """Held games go to the front of the pool, the oldest foremost, so that old games end first; suspects to its back."""
    row = state.jobs[number]
    suspects = {uid for uid in row.held if is_suspect(state, uid)}
    pool = (*sorted(row.held - suspects), *state.pool, *sorted(suspects, reverse=True))
    return put(replace(state, pool=pool), number, replace(row, held=frozenset()))


def end_lease(state: State, now_ms: int, number: int, error: str, max_attempts: int) -> State:
    """A lease that ended badly: the games go back; the job gets another attempt while it has some left."""
    state, tested = strike(state, number)
    state = give_back(state, number)
    row = seen(state.jobs[number], lease_until_ms=0)
    row = replace(row, failures=row.failures + (not tested))
    state = put(state, number, row)
    if row.cancel:
        return end_job(state, now_ms, number, JobState.CANCELLED, error)
    if row.failures >= max_attempts:
        return end_job(state, now_ms, number, JobState.FAILED, error)
    again = seen(row, state=JobState.QUEUED, attempt=row.view.attempt + 1, published_ms=0, claimed_ms=0, error=error)
    return put(state, number, again)
