"""Rules of open games: adopted, journaled, finished, abandoned, given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from azq.errors import StateConflict
from azq.ledger.rules.jobs import give_back
from azq.ledger.rules.runs import per_version
from azq.ledger.rules.state import State, all_held, end_job, ended_by, leased_row, may_work, put
from azq.ledger.rules.strikes import is_suspect, moved_on, under_test
from azq.ledger.types import JobState, Lease
from azq.wire.messages import GameRecord, SampleEvent


def adopt(state: State, lease: Lease, count: int, versions: int = 0) -> tuple[State, list[GameRecord]]:
    """Exactly `count` games, from the pool first; none while the run does not want the job. Raises `LeaseLost`.

    Fewer where they are suspects, who are played by themselves, and none besides while they have not moved; and in lockstep, where no game
    is opened before the weights that it is to be played with: `versions` of them there are.
    """
    number, row = leased_row(state, lease)
    if not may_work(state, row) or any(is_suspect(state, uid) for uid in row.held):
        return state, []
    most = per_version(state.record)
    openable = max(0, most * versions - state.opened) if most else count
    if not row.held and (uids := under_test(state, count, openable)):
        state = replace(state, pool=state.pool[: -len(uids)])
        return put(state, number, replace(row, held=frozenset(uids))), [state.open[uid] for uid in uids]
    pooled = tuple(takewhile(lambda uid: not is_suspect(state, uid), state.pool[:count]))
    fresh = range(state.opened + 1, state.opened + 1 + min(count - len(pooled), openable))
    uids = (*pooled, *fresh)
    opened = {**state.open, **{uid: GameRecord(uid) for uid in fresh}}
    state = replace(state, open=opened, pool=state.pool[len(pooled) :], opened=state.opened + len(fresh))
    return put(state, number, replace(row, held=row.held | set(uids))), [opened[uid] for uid in uids]


def adopt_named(state: State, lease: Lease, uids: Sequence[int]) -> tuple[State, list[GameRecord]]:
    """Those of the games that lie in the pool; none while the run does not want the job. Raises `LeaseLost`.

    Suspects among them: who names a game has played it.
    """
    number, row = leased_row(state, lease)
    found = [uid for uid in dict.fromkeys(uids) if uid in state.pool] if may_work(state, row) else []
    state = replace(state, pool=tuple(uid for uid in state.pool if uid not in found))
    return put(state, number, replace(row, held=row.held | set(found))), [state.open[uid] for uid in found]


def journal(state: State, lease: Lease, records: Sequence[GameRecord]) -> State:
    """Writes the records of held games that moved. Raises `LeaseLost`."""
    uids = [record.uid for record in records]
    all_held(state, lease, uids)
    return replace(moved_on(state, uids), open={**state.open, **{record.uid: record for record in records}})


def distinct(events: Sequence[SampleEvent]) -> list[int]:
    """The numbers of finished games. Raises `StateConflict` where one occurs twice."""
    uids = [event.record.uid for event in events]
    if len(set(uids)) != len(uids):
        raise StateConflict("a game occurs twice among those to finish; finish each once")
    return uids


def finish_games(state: State, lease: Lease, uids: Sequence[int]) -> State:
    """Closes games; the caller hands over their samples in the same step. Raises `LeaseLost`.

    A job that makes games is not at fault when its holders die: its failures are counted from here again.
    """
    number, row = all_held(state, lease, uids)
    left = {uid: record for uid, record in state.open.items() if uid not in set(uids)}
    state = replace(moved_on(state, uids), open=left, finished=state.finished + len(uids))
    failures = 0 if uids else row.failures
    return put(state, number, replace(row, held=row.held - set(uids), failures=failures))


def abandon(state: State, lease: Lease, uid: int, reason: str) -> State:
    """Closes a game that nobody can play on; one abandoned already stays so. Raises `LeaseLost`."""
    leased_row(state, lease)
    if uid in state.abandoned:
        return state
    number, row = all_held(state, lease, [uid])
    left = {other: record for other, record in state.open.items() if other != uid}
    strikes = {other: count for other, count in state.strikes.items() if other != uid}
    state = replace(state, open=left, strikes=strikes, abandoned={**state.abandoned, uid: reason})
    return put(state, number, replace(row, held=row.held - {uid}))


def release(state: State, now_ms: int, lease: Lease, records: Sequence[GameRecord]) -> State:
    """Writes the last changes, gives the games back, ends the job; a repeated call changes nothing. Raises `LeaseLost`."""
    if ended_by(state, lease):
        return state
    number, row = leased_row(state, lease)
    state = give_back(journal(state, lease, records), number)
    state = put(state, number, replace(state.jobs[number], released=True))
    return end_job(state, now_ms, number, JobState.CANCELLED if row.cancel else JobState.DONE, "")


def complete(state: State, now_ms: int, lease: Lease, problem: str = "") -> tuple[State, bool]:
    """Ends an evaluation job, failed where there was a problem; False where a repeated call finds it ended, and its result kept, already.

    Raises `LeaseLost`.
    """
    if ended_by(state, lease):
        return state, False
    number, _ = leased_row(state, lease)
    state = give_back(state, number)
    state = put(state, number, replace(state.jobs[number], released=True))
    return end_job(state, now_ms, number, JobState.FAILED if problem else JobState.DONE, problem), True
