"""The rules alone: pure, and no order of events loses a game or counts one twice."""

from __future__ import annotations

import contextlib
import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.errors import AzqError, LeaseLost
from azq.ledger import rules
from azq.ledger.types import Directive, JobState, Lease, RunState
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunRecord

LEASE_S = 5.0
STEPS = (
    "enqueue",
    "claim",
    "adopt",
    "adopt_named",
    "journal",
    "finish",
    "abandon",
    "release",
    "fail",
    "expire",
    "requeue",
    "cancel",
    "pause",
    "resume",
    "wait",
)


def fresh() -> rules.state.State:
    return rules.state.State(RunRecord("r", b"", {}, "", 0), changed_ms=0)


def with_lease(state: rules.state.State, now_ms: int = 0) -> tuple[rules.state.State, Lease]:
    state, view = rules.jobs.enqueue(state, now_ms, Job("", "r", Kind.SELFPLAY, "cpu"))
    return rules.jobs.claim(state, now_ms, int(view.job.job_id.rpartition(":")[2]), 1, "w", LEASE_S)


def check(state: rules.state.State) -> None:
    held = [uid for row in state.jobs.values() for uid in row.held]
    assert sorted([*held, *state.pool]) == sorted(state.open)
    assert state.opened == state.finished + len(state.open) + len(state.abandoned)
    assert {number for _, number in state.queue} == {
        number for number, row in state.jobs.items() if row.view.state in (JobState.QUEUED, JobState.LEASED)
    }
    assert set(state.ended) | {number for _, number in state.queue} == set(state.jobs)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), max_size=60))
def test_no_order_of_events_loses_a_game(steps):
    leases: list[Lease] = []
    state, now = fresh(), 0
    for step, which, count in steps:
        with contextlib.suppress(AzqError):
            state, leases, now = take(state, leases, now, step, which, count)
        check(state)


def take(state, leases, now, step, which, count):
    """One event; leases that are long lost are used as well."""
    lease = leases[which % len(leases)] if leases else None
    number = 1 + which % max(1, state.job_seq)
    row = state.jobs.get(number)
    if step == "enqueue":
        state, _ = rules.jobs.enqueue(state, now, Job("", "r", Kind.SELFPLAY, "cpu"))
    elif step == "claim" and row is not None:
        state, claimed = rules.jobs.claim(state, now, number, row.view.attempt, f"w{count % 2}", LEASE_S)
        leases = [*leases, claimed] if claimed else leases
    elif step == "expire":
        state, _ = rules.jobs.expire(state, now, 2)
    elif step == "requeue" and row is not None:
        state = rules.jobs.requeue(state, now, number, row.view.attempt)
    elif step == "cancel":
        state = rules.jobs.cancel(state, now, number)
    elif step in ("pause", "resume"):
        state = rules.runs.set_run_state(state, now, RunState.PAUSED if step == "pause" else RunState.RUNNING, "")
    elif step == "wait":
        now += count * 1000
    elif lease is not None:
        state = use(state, lease, now, step, count)
    return state, leases, now


def use(state, lease, now, step, count):
    """One call under a lease."""
    row = state.jobs.get(rules.state.number_of(lease))
    some = sorted(row.held)[:count] if row else []
    if step == "adopt":
        return rules.games.adopt(state, lease, count)[0]
    if step == "adopt_named":
        return rules.games.adopt_named(state, lease, range(1, count))[0]
    if step == "journal":
        return rules.games.journal(state, lease, [GameRecord(uid, b"\0\0") for uid in some])
    if step == "finish":
        return rules.games.finish_games(state, lease, some)
    if step == "abandon":
        return rules.games.abandon(state, lease, some[0] if some else 1, "why")
    if step == "release":
        return rules.games.release(state, now, lease, [])
    return rules.jobs.fail(state, now, lease, "why", 2)


def test_rules_change_no_state_they_were_given():
    state, lease = with_lease(fresh())
    before = copy.deepcopy(state)
    after, games = rules.games.adopt(state, lease, 3)
    rules.games.finish_games(after, lease, [1])
    rules.games.release(after, 5, lease, [GameRecord(2, b"\0\0")])
    assert state == before
    assert [game.uid for game in games] == [1, 2, 3]


def test_a_rule_that_raises_names_the_owner_and_the_job():
    state, lease = with_lease(fresh())
    state, _ = rules.jobs.expire(state, 6000, 3)
    with pytest.raises(LeaseLost, match="w lost job r:1, attempt 1; nothing was committed"):
        rules.jobs.renew(state, 6000, lease, stalled=False)


def test_a_stall_is_for_selfplay_only():
    state, lease = with_lease(fresh())
    assert rules.jobs.renew(state, 0, lease, stalled=True)[1] is Directive.STALL
    state, view = rules.jobs.enqueue(state, 0, Job("", "r", Kind.EVAL, "cpu"))
    state, other = rules.jobs.claim(state, 0, 2, 1, "w", LEASE_S)
    assert view.job.job_id == "r:2"
    assert rules.jobs.renew(state, 0, other, stalled=True)[1] is Directive.GO_ON


def test_the_oldest_games_are_adopted_first():
    state, one = with_lease(fresh())
    state, _ = rules.games.adopt(state, one, 4)
    state, two = with_lease_of(state, 2)
    state, _ = rules.games.adopt(state, two, 2)
    state = rules.games.release(state, 0, two, [])
    state, _ = rules.jobs.expire(state, 6000, 3)
    assert state.pool == (1, 2, 3, 4, 5, 6)


def with_lease_of(state: rules.state.State, number: int) -> tuple[rules.state.State, Lease]:
    state, _ = rules.jobs.enqueue(state, 0, Job("", "r", Kind.SELFPLAY, "cpu"))
    return rules.jobs.claim(state, 0, number, 1, "w2", LEASE_S)
