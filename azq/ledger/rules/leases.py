"""How a lease ends: its games go back to the pool, and a bad end has consequences."""

from __future__ import annotations

from dataclasses import replace

from azq.ledger.rules.state import State, end_job, put, seen
from azq.ledger.rules.strikes import is_suspect, strike
from azq.ledger.types import JobState


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
