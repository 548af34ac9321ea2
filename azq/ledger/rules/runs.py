"""Rules of runs: their names, states and settings, and what others hear of a change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from azq.config import RUN_NAME_PATTERN, SelfPlayConfig
from azq.errors import ConfigError, StateConflict
from azq.ledger.records import known_section
from azq.ledger.rules.state import KEPT_PAUSES, JobRow, State, next_attempt
from azq.ledger.rules.strikes import REASON as SET_ASIDE_REASON
from azq.ledger.types import JobState, JobView, RunState, RunView
from azq.wire.messages import RunRecord

LOST_WITH_IT = "open games, arena results and history of before"  # with a control plane

TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.FINISHED, RunState.FAILED}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.FINISHED, RunState.FAILED}),
    RunState.FINISHED: frozenset({RunState.RUNNING}),
    RunState.FAILED: frozenset({RunState.RUNNING}),
}


class _SelfPlay(msgspec.Struct):
    max_waiting_games: int = SelfPlayConfig().max_waiting_games


class _Learner(msgspec.Struct):
    lockstep_games: int = 0


def per_version(record: RunRecord) -> int:
    """Games that may be opened for each weight version of a run; 0: any number."""
    return known_section(record, "learner", _Learner).lockstep_games


def max_waiting(record: RunRecord) -> int:
    """Finished games of a run that may wait for its learner before self-play stalls; the default where its settings do not parse."""
    return known_section(record, "selfplay", _SelfPlay).max_waiting_games


def check_run_name(name: str) -> str:
    """The name. Raises `ConfigError` for one that could not be part of keys, folders and job ids."""
    if not re.fullmatch(RUN_NAME_PATTERN, name):
        raise ConfigError(f"run name {name!r} is not lower-case letters, digits, - and _, at most 64; choose another")
    return name


def active_until(now_ms: int, state: RunState, active_ms: int, changed_ms: int) -> int:
    """How long a run has been running, in ms, that had been for `active_ms` when its state changed last."""
    return active_ms + (max(0, now_ms - changed_ms) if state is RunState.RUNNING else 0)


def run_view(state: State, now_ms: int) -> RunView:
    """The run as everybody sees it."""
    active_ms = active_until(now_ms, state.state, state.active_ms, state.changed_ms)
    return RunView(state.record, state.state, state.reason, active_ms, state.changed_ms, state.pauses, state.changed_job)


def set_run_state(state: State, now_ms: int, new: RunState, reason: str) -> State:
    """Changes the run's state; the one it has already changes nothing. Raises `StateConflict`."""
    if new is state.state:
        return state
    if new not in TRANSITIONS[state.state]:
        raise StateConflict(f"run {state.record.run} is {state.state} and cannot become {new}; resume it first")
    over = [] if state.state is RunState.RUNNING else [(state.changed_ms, now_ms)]
    pauses = (*state.pauses, *over)[-KEPT_PAUSES:]
    jobs = _sent_again(state) if new is RunState.RUNNING else state.jobs
    state = replace(state, active_ms=run_view(state, now_ms).active_ms, pauses=pauses, jobs=jobs)
    return replace(state, state=new, reason=reason, changed_ms=now_ms, changed_job=state.job_seq)


def _sent_again(state: State) -> Mapping[int, JobRow]:
    """Workers refused messages while the run did not run: each job that one was sent of gets the next attempt."""
    sent = {number: row for number, row in state.jobs.items() if row.view.state is JobState.QUEUED and row.view.published_ms}
    return {**state.jobs, **{number: next_attempt(row) for number, row in sent.items()}}


LEARNING = "learning"  # what a run is whose learner holds its place


def check_deletable(state: State, now_ms: int) -> None:
    """Raises `StateConflict` where a run, or a worker or the learner of one, would write on after it was deleted."""
    if state.state is RunState.RUNNING:
        raise still_at_work(state.record.run, state.state.value)
    for row in state.jobs.values():
        if row.view.state is JobState.LEASED:
            raise still_at_work(state.record.run, row.view.state.value, row.view.owner)
    if state.learner.until_ms > now_ms:
        raise still_at_work(state.record.run, LEARNING, state.learner.holder)


def still_at_work(run: str, state: str, owner: str = "") -> StateConflict:
    """The error for a run that cannot be deleted: it is running, or a worker or its learner has not ended."""
    if state == LEARNING:
        return StateConflict(f"{owner} still learns run {run}; stop it, then delete the run")
    if owner:
        return StateConflict(f"{owner} still holds a job of run {run}; it gives it back within seconds, then delete the run")
    return StateConflict(f"run {run} is {state}; pause or finish it, then delete it")


def events(before: State | None, after: State) -> list[tuple[str, dict[str, str]]]:
    """What one change did to a run and its jobs, as kinds and details of `RunEvent`."""
    said: list[tuple[str, dict[str, str]]] = []
    if before is None or before.state is not after.state:
        said.append((f"run.{after.state}", {"reason": after.reason}))
    if after.restored > (before.restored if before else 0):
        gone = after.written_off - (before.written_off if before else 0)
        said.append(("run.restored", {"games": str(after.inserted), "written_off": str(gone), "lost": LOST_WITH_IT}))
    for uid in sorted(set(after.abandoned) - set(before.abandoned if before else ())):
        if after.abandoned[uid] == SET_ASIDE_REASON:
            said.append(("game.set_aside", {"game": str(uid), "reason": SET_ASIDE_REASON}))
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
