"""The ledger's rules as pure functions: what `azq.ledger.scripts` does on the server, said in Python.

A rule takes the state of one run, the time in ms and its arguments, and returns the new state, with an answer where there is one.
Rules raise `LeaseLost`, `StateConflict` and `NotFound`; the state is a value, so a rule that raises has changed nothing.
Invariant: every open game is either in the pool or held by exactly one leased job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import msgspec

from azq.config import RUN_NAME_PATTERN, SelfPlayConfig
from azq.errors import ConfigError, LeaseLost, NotFound, StateConflict
from azq.ledger.types import RECENT, Directive, GameRecord, Job, JobState, JobView, Lease, RunState, RunView
from azq.wire.messages import RunRecord

KEPT_ENDED_JOBS = 200
KEPT_EVENTS = 2000

TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.FINISHED, RunState.FAILED}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.FINISHED, RunState.FAILED}),
    RunState.FINISHED: frozenset({RunState.RUNNING}),
    RunState.FAILED: frozenset({RunState.RUNNING}),
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job with what only the rules see of it."""

    view: JobView
    failures: int = 0  # leases that ended badly
    cancel: bool = False  # its worker is to be told
    released: bool = False  # its last owner ended it well
    held: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """One run of the ledger."""

    record: RunRecord
    changed_ms: int
    state: RunState = RunState.RUNNING
    reason: str = ""
    active_ms: int = 0
    opened: int = 0
    finished: int = 0
    inserted: int = 0
    duplicates_dropped: int = 0
    job_seq: int = 0
    open: Mapping[int, GameRecord] = field(default_factory=dict)
    pool: tuple[int, ...] = ()
    abandoned: Mapping[int, str] = field(default_factory=dict)
    jobs: Mapping[int, JobRow] = field(default_factory=dict)
    queue: tuple[tuple[int, int], ...] = ()  # (time of publication or creation, number) of jobs not ended, sorted as the server does
    ended: tuple[int, ...] = ()  # newest first


# -- runs


class _SelfPlay(msgspec.Struct):
    max_waiting_games: int = SelfPlayConfig().max_waiting_games


class _Sections(msgspec.Struct):
    selfplay: _SelfPlay = msgspec.field(default_factory=_SelfPlay)


def max_waiting(record: RunRecord) -> int:
    """Finished games of a run that may wait for its learner before self-play stalls; the default where its settings do not parse."""
    try:
        return msgspec.json.decode(record.sections, type=_Sections).selfplay.max_waiting_games
    except msgspec.DecodeError:
        return _SelfPlay().max_waiting_games


def check_run_name(name: str) -> None:
    """Raises `ConfigError` for a name that could not be part of keys, folders and job ids."""
    if not re.fullmatch(RUN_NAME_PATTERN, name):
        raise ConfigError(f"run name {name!r} is not lower-case letters, digits, - and _, at most 64; choose another")


def run_view(state: State, now_ms: int) -> RunView:
    """The run as everybody sees it."""
    running_ms = max(0, now_ms - state.changed_ms) if state.state is RunState.RUNNING else 0
    return RunView(state.record, state.state, state.reason, state.active_ms + running_ms, state.changed_ms)


def set_run_state(state: State, now_ms: int, new: RunState, reason: str) -> State:
    """Changes the run's state; the one it has already changes nothing. Raises `StateConflict`."""
    if new is state.state:
        return state
    if new not in TRANSITIONS[state.state]:
        raise StateConflict(f"run {state.record.run} is {state.state} and cannot become {new}; resume it first")
    return replace(state, state=new, reason=reason, active_ms=run_view(state, now_ms).active_ms, changed_ms=now_ms)


# -- jobs


def enqueue(state: State, now_ms: int, job: Job) -> tuple[State, JobView]:
    """A new job under the run's next number; `job.job_id` is filled in."""
    number = state.job_seq + 1
    named = Job(f"{state.record.run}:{number}", state.record.run, job.kind, job.tag, job.priority, job.games, job.slice_s, job.payload)
    view = JobView(named, JobState.QUEUED, 1, "", 0, 0, now_ms, 0, 0, "")
    state = replace(state, job_seq=number, queue=_queued(state, number, now_ms))
    return _put(state, number, JobRow(view)), view


def mark_published(state: State, now_ms: int, number: int, attempt: int) -> State:
    """Notes a publication; too late, it changes nothing."""
    row = state.jobs.get(number)
    if row is None or row.view.attempt != attempt or not _active(row):
        return state
    state = replace(state, queue=_queued(state, number, now_ms))
    return _put(state, number, _seen(row, published_ms=now_ms))


def cancel(state: State, now_ms: int, number: int) -> State:
    """A queued job ends at once, a leased one when its worker hears of it. Raises `NotFound`, `StateConflict`."""
    row = _row(state, number)
    if row.view.state is JobState.QUEUED:
        return _end(state, now_ms, number, JobState.CANCELLED, "")
    if row.view.state is JobState.LEASED:
        return _put(state, number, replace(row, cancel=True))
    raise StateConflict(f"job {row.view.job.job_id} is {row.view.state}; nothing was changed")


def claim(state: State, now_ms: int, number: int, attempt: int, owner: str, lease_s: float) -> tuple[State, Lease | None]:
    """A lease, or None where the attempt is stale, the job is not queued or the run does not want it now."""
    row = state.jobs.get(number)
    if row is None or row.view.state is not JobState.QUEUED or row.view.attempt != attempt or not _may_work(state, row):
        return state, None
    leased = _seen(row, state=JobState.LEASED, owner=owner, claimed_ms=now_ms, lease_until_ms=now_ms + lease_ms(lease_s))
    return _put(state, number, leased), Lease(row.view.job, attempt, owner, lease_s)


def renew(state: State, now_ms: int, lease: Lease, *, stalled: bool) -> tuple[State, Directive]:
    """Lengthens a lease and says what its worker is to do. Raises `LeaseLost`."""
    number, row = _leased(state, lease)
    state = _put(state, number, _seen(row, lease_until_ms=now_ms + lease_ms(lease.lease_s)))
    if row.cancel or not _may_work(state, row):
        return state, Directive.RELEASE
    if stalled and row.view.job.kind == "selfplay":
        return state, Directive.STALL
    return state, Directive.GO_ON


def expire(state: State, now_ms: int, max_attempts: int) -> tuple[State, list[JobView]]:
    """Ends every lease whose time is over."""
    over = [
        number
        for _, number in state.queue
        if state.jobs[number].view.state is JobState.LEASED and state.jobs[number].view.lease_until_ms <= now_ms
    ]
    for number in over:
        state = _end_lease(state, now_ms, number, f"the lease of {state.jobs[number].view.owner} ran out", max_attempts)
    return state, [state.jobs[number].view for number in over if number in state.jobs]


def requeue(state: State, now_ms: int, number: int, attempt: int) -> State:
    """The next attempt of a job whose message was lost. Raises `NotFound`, `StateConflict`."""
    row = _row(state, number)
    if row.view.state is not JobState.QUEUED or row.view.attempt != attempt:
        raise StateConflict(f"job {row.view.job.job_id} is {row.view.state} under attempt {row.view.attempt}; nothing was changed")
    return _put(state, number, _seen(row, attempt=attempt + 1, published_ms=0))


def fail(state: State, now_ms: int, lease: Lease, error: str, max_attempts: int) -> State:
    """Ends a lease badly. Raises `LeaseLost`."""
    number, _ = _leased(state, lease)
    return _end_lease(state, now_ms, number, error, max_attempts)


# -- open games


def adopt(state: State, lease: Lease, count: int) -> tuple[State, list[GameRecord]]:
    """Exactly `count` games, from the pool first; none while the run does not want the job. Raises `LeaseLost`."""
    number, row = _leased(state, lease)
    if not _may_work(state, row):
        return state, []
    pooled = state.pool[:count]
    fresh = range(state.opened + 1, state.opened + 1 + count - len(pooled))
    uids = (*pooled, *fresh)
    opened = {**state.open, **{uid: GameRecord(uid) for uid in fresh}}
    state = replace(state, open=opened, pool=state.pool[len(pooled) :], opened=state.opened + len(fresh))
    return _put(state, number, replace(row, held=row.held | set(uids))), [opened[uid] for uid in uids]


def journal(state: State, lease: Lease, records: Sequence[GameRecord]) -> State:
    """Writes the records of held games. Raises `LeaseLost`."""
    _all_held(state, lease, [record.uid for record in records])
    return replace(state, open={**state.open, **{record.uid: record for record in records}})


def finish_games(state: State, lease: Lease, uids: Sequence[int]) -> State:
    """Closes games; the caller hands over their samples in the same step. Raises `LeaseLost`.

    A job that makes games is not at fault when its holders die: its failures are counted from here again.
    """
    number, row = _all_held(state, lease, uids)
    left = {uid: record for uid, record in state.open.items() if uid not in set(uids)}
    state = replace(state, open=left, finished=state.finished + len(uids))
    failures = 0 if uids else row.failures
    return _put(state, number, replace(row, held=row.held - set(uids), failures=failures))


def refuse(state: State, reasons: Mapping[int, str]) -> State:
    """Finished games that the learner found to break the rules are abandoned instead; forged uids change nothing."""
    known = {**state.open, **state.abandoned}
    fresh = {uid: reason for uid, reason in reasons.items() if uid <= state.opened and uid not in known}
    return replace(state, finished=state.finished - len(fresh), abandoned={**state.abandoned, **fresh})


def abandon(state: State, lease: Lease, uid: int, reason: str) -> State:
    """Closes a game that nobody can play on; one abandoned already stays so. Raises `LeaseLost`."""
    _leased(state, lease)
    if uid in state.abandoned:
        return state
    number, row = _all_held(state, lease, [uid])
    left = {other: record for other, record in state.open.items() if other != uid}
    state = replace(state, open=left, abandoned={**state.abandoned, uid: reason})
    return _put(state, number, replace(row, held=row.held - {uid}))


def release(state: State, now_ms: int, lease: Lease, records: Sequence[GameRecord]) -> State:
    """Writes the last changes, gives the games back, ends the job; a repeated call changes nothing. Raises `LeaseLost`."""
    if _ended_by(state, lease):
        return state
    number, row = _leased(state, lease)
    state = _give_back(journal(state, lease, records), number)
    state = _put(state, number, replace(state.jobs[number], released=True))
    return _end(state, now_ms, number, JobState.CANCELLED if row.cancel else JobState.DONE, "")


def complete(state: State, now_ms: int, lease: Lease) -> tuple[State, bool]:
    """Ends an evaluation job; False where a repeated call finds it ended, and its result kept, already. Raises `LeaseLost`."""
    if _ended_by(state, lease):
        return state, False
    number, _ = _leased(state, lease)
    state = _give_back(state, number)
    state = _put(state, number, replace(state.jobs[number], released=True))
    return _end(state, now_ms, number, JobState.DONE, ""), True


def lease_ms(lease_s: float) -> int:
    """A lease's length in whole milliseconds, at least one."""
    return max(1, round(lease_s * 1000))


def number_of(lease: Lease) -> int:
    """The number of a lease's job."""
    return int(lease.job.job_id.rpartition(":")[2])


def recent(state: State) -> tuple[JobView, ...]:
    """The newest ended self-play jobs back to the last one that did not fail."""
    views = [state.jobs[number].view for number in state.ended[:RECENT]]
    selfplay = [view for view in views if view.job.kind == "selfplay"]
    failed = list(takewhile(lambda view: view.state is JobState.FAILED, selfplay))
    return tuple(selfplay[: len(failed) + 1])


# -- what others hear of it


def events(before: State | None, after: State) -> list[tuple[str, dict[str, str]]]:
    """What one change did to a run and its jobs, as kinds and details of `RunEvent`."""
    said: list[tuple[str, dict[str, str]]] = []
    if before is None or before.state is not after.state:
        said.append((f"run.{after.state}", {"reason": after.reason}))
    old = before.jobs if before else {}
    for number, row in after.jobs.items():
        if (kind := _became(old[number].view if number in old else None, row.view)) is not None:
            view = row.view
            about = {"job": str(number), "kind": view.job.kind, "tag": view.job.tag, "attempt": str(view.attempt)}
            said.append((f"job.{kind}", {**about, "owner": view.owner, "error": view.error}))
    return said


def _became(before: JobView | None, after: JobView) -> str | None:
    if before is not None and (before.state, before.attempt) == (after.state, after.attempt):
        return None
    return "requeued" if before is not None and after.state is JobState.QUEUED else str(after.state)


# -- parts of rules


def _may_work(state: State, row: JobRow) -> bool:
    return state.state is RunState.RUNNING or (state.state is RunState.FINISHED and row.view.job.kind == "eval")


def _active(row: JobRow) -> bool:
    return row.view.state in (JobState.QUEUED, JobState.LEASED)


def _row(state: State, number: int) -> JobRow:
    if number not in state.jobs:
        raise NotFound(f"no job {state.record.run}:{number}; only the newest {KEPT_ENDED_JOBS} ended jobs of a run are kept")
    return state.jobs[number]


def _leased(state: State, lease: Lease) -> tuple[int, JobRow]:
    number = number_of(lease)
    row = state.jobs.get(number)
    if row is None or (row.view.state, row.view.attempt, row.view.owner) != (JobState.LEASED, lease.attempt, lease.owner):
        raise LeaseLost(f"{lease.owner} lost job {lease.job.job_id}, attempt {lease.attempt}; nothing was committed")
    return number, row


def _all_held(state: State, lease: Lease, uids: Sequence[int]) -> tuple[int, JobRow]:
    number, row = _leased(state, lease)
    for uid in uids:
        if uid not in row.held:
            raise LeaseLost(f"{lease.owner} does not hold game {uid} in job {lease.job.job_id}; nothing was committed")
    return number, row


def _ended_by(state: State, lease: Lease) -> bool:
    row = state.jobs.get(number_of(lease))
    return row is not None and row.released and (row.view.attempt, row.view.owner) == (lease.attempt, lease.owner)


def _give_back(state: State, number: int) -> State:
    row = state.jobs[number]
    state = replace(state, pool=(*sorted(row.held), *state.pool))
    return _put(state, number, replace(row, held=frozenset()))


def _end_lease(state: State, now_ms: int, number: int, error: str, max_attempts: int) -> State:
    state = _give_back(state, number)
    row = _seen(state.jobs[number], lease_until_ms=0)
    row = replace(row, failures=row.failures + 1)
    state = _put(state, number, row)
    if row.cancel:
        return _end(state, now_ms, number, JobState.CANCELLED, error)
    if row.failures >= max_attempts:
        return _end(state, now_ms, number, JobState.FAILED, error)
    again = _seen(row, state=JobState.QUEUED, attempt=row.view.attempt + 1, published_ms=0, claimed_ms=0, error=error)
    return _put(state, number, again)


def _end(state: State, now_ms: int, number: int, how: JobState, error: str) -> State:
    state = _put(state, number, _seen(state.jobs[number], state=how, ended_ms=now_ms, error=error))
    ended = (number, *state.ended)
    kept = {key: row for key, row in state.jobs.items() if key not in ended[KEPT_ENDED_JOBS:]}
    return replace(state, jobs=kept, ended=ended[:KEPT_ENDED_JOBS], queue=tuple(item for item in state.queue if item[1] != number))


def _put(state: State, number: int, row: JobRow) -> State:
    return replace(state, jobs={**state.jobs, number: row})


def _seen(row: JobRow, **changes: object) -> JobRow:
    return replace(row, view=replace(row.view, **changes))  # type: ignore[arg-type]


def _queued(state: State, number: int, at_ms: int) -> tuple[tuple[int, int], ...]:
    others = [item for item in state.queue if item[1] != number]
    return tuple(sorted([*others, (at_ms, number)], key=lambda item: (item[0], str(item[1]))))
