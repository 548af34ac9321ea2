"""Rules of jobs at their limits: who may claim what and when, what a lease that ends leaves behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ledger_states import CANCELLED, DONE, FAILED, LEASED, QUEUED, games, job, lease, run

from azq.errors import LeaseLost, NotFound, StateConflict
from azq.ledger import rules
from azq.ledger.rules.jobs import end_lease, give_back
from azq.ledger.types import Directive, JobView, RunState
from azq.wire.kinds import Kind
from azq.wire.messages import Job


def test_a_job_gets_the_next_number_and_waits_since_now():
    state, view = rules.jobs.enqueue(run(job(8)), 70, Job("", "r", Kind.EVAL, "gpu", 3, 4, 5.0, b"p"))
    assert view == JobView(Job("r:9", "r", Kind.EVAL, "gpu", 3, 4, 5.0, b"p"), QUEUED, 1, "", 0, 0, 70, 0, 0, "")
    assert state.jobs[9] == rules.state.JobRow(view, failures=0, cancel=False, released=False, held=frozenset())
    assert (state.job_seq, state.queue) == (9, ((10, 8), (70, 9)))


@pytest.mark.parametrize("of", [QUEUED, LEASED])
def test_a_publication_moves_a_job_back_in_the_queue(of):
    state = rules.jobs.mark_published(run(job(1, of), job(2)), 50, 1, 3)
    assert state.jobs[1].view.published_ms == 50
    assert state.queue == ((10, 2), (50, 1))


@pytest.mark.parametrize(("number", "attempt"), [(1, 2), (1, 4), (2, 3), (7, 3)])
def test_a_publication_of_another_attempt_or_too_late_changes_nothing(number, attempt):
    state = run(job(1), job(2, DONE))
    assert rules.jobs.mark_published(state, 50, number, attempt) is state


def test_cancelling_ends_a_waiting_job_and_tells_the_worker_of_a_leased_one():
    state = run(job(1), job(2, LEASED), job(3, DONE))
    waiting = rules.jobs.cancel(state, 50, 1)
    assert (waiting.jobs[1].view.state, waiting.jobs[1].view.ended_ms, waiting.ended[0]) == (CANCELLED, 50, 1)
    assert waiting.queue == ((10, 2),)
    assert rules.jobs.cancel(state, 50, 2) == replace(state, jobs={**state.jobs, 2: replace(state.jobs[2], cancel=True)})
    with pytest.raises(StateConflict, match="job r:3 is done; nothing was changed"):
        rules.jobs.cancel(state, 50, 3)
    with pytest.raises(NotFound, match="no job r:4; only the newest 200 ended jobs"):
        rules.jobs.cancel(state, 50, 4)


def test_a_claim_is_a_lease_from_now_on():
    state, claimed = rules.jobs.claim(run(job(1)), 1000, 1, 3, "w9", 2.5)
    assert claimed == replace(lease(), owner="w9", lease_s=2.5)
    view = state.jobs[1].view
    assert (view.state, view.owner, view.claimed_ms, view.lease_until_ms) == (LEASED, "w9", 1000, 3500)


@pytest.mark.parametrize(
    ("row", "attempt", "run_is"),
    [
        (job(2), 3, RunState.RUNNING),  # no such job
        (job(1, LEASED), 3, RunState.RUNNING),
        (job(1, DONE), 3, RunState.RUNNING),
        (job(1), 2, RunState.RUNNING),
        (job(1), 4, RunState.RUNNING),
        (job(1), 3, RunState.PAUSED),
        (job(1), 3, RunState.FINISHED),
    ],
)
def test_what_nobody_may_claim(row, attempt, run_is):
    state = run(row, state=run_is)
    after, claimed = rules.jobs.claim(state, 50, 1, attempt, "w", 5.0)
    assert after is state
    assert claimed is None


@pytest.mark.parametrize(
    ("row", "stalled", "run_is", "directive"),
    [
        (job(1, LEASED), False, RunState.RUNNING, Directive.GO_ON),
        (job(1, LEASED), True, RunState.RUNNING, Directive.STALL),
        (job(1, LEASED, Kind.EVAL), True, RunState.RUNNING, Directive.GO_ON),
        (job(1, LEASED, Kind.EVAL), True, RunState.FINISHED, Directive.GO_ON),
        (job(1, LEASED), False, RunState.FINISHED, Directive.RELEASE),
        (job(1, LEASED), True, RunState.PAUSED, Directive.RELEASE),
        (job(1, LEASED, Kind.EVAL), False, RunState.PAUSED, Directive.RELEASE),
        (job(1, LEASED, cancel=True), True, RunState.RUNNING, Directive.RELEASE),
    ],
)
def test_renewing_lengthens_a_lease_and_says_what_to_do(row, stalled, run_is, directive):
    state, said = rules.jobs.renew(run(row, state=run_is), 1000, lease(), stalled=stalled)
    assert state.jobs[1].view.lease_until_ms == 6000
    assert said is directive


def test_a_lease_expires_at_its_last_millisecond_and_not_before():
    state = run(job(1, LEASED, lease_until_ms=500), job(2, LEASED, lease_until_ms=501), job(3), job(4, LEASED, lease_until_ms=499))
    after, over = rules.jobs.expire(state, 500, 9)
    assert [view.job.job_id for view in over] == ["r:1", "r:4"]
    assert over == [after.jobs[number].view for number in (1, 4)]
    assert over[0].error == "the lease of w ran out"
    assert (after.jobs[1].view.state, after.jobs[1].view.attempt) == (QUEUED, 4)
    assert [after.jobs[number] for number in (2, 3)] == [state.jobs[number] for number in (2, 3)]


def test_more_leases_may_run_out_at_once_than_ended_jobs_are_kept():
    state, over = rules.jobs.expire(run(*(job(number, LEASED) for number in range(1, 203))), 9_000, 1)
    assert sorted(state.jobs) == list(range(3, 203))
    assert [view.job.job_id for view in over] == [f"r:{number}" for number in range(3, 203)]


def test_a_lost_message_is_sent_again_as_the_next_attempt():
    state = run(job(1), job(2, LEASED))
    view = rules.jobs.requeue(state, 50, 1, 3).jobs[1].view
    assert view == replace(state.jobs[1].view, attempt=4, published_ms=0)
    for number, attempt, what in ((1, 2, "r:1 is queued under attempt 3"), (2, 3, "r:2 is leased under attempt 3")):
        with pytest.raises(StateConflict, match=f"job {what}; nothing was changed"):
            rules.jobs.requeue(state, 50, number, attempt)


def test_failing_needs_the_lease_and_keeps_the_error():
    state = run(job(1, LEASED, failures=1))
    with pytest.raises(LeaseLost):
        rules.jobs.fail(state, 50, lease(attempt=2), "why", 2)
    view = rules.jobs.fail(state, 50, lease(), "why", 2).jobs[1].view
    assert (view.state, view.error, view.ended_ms) == (FAILED, "why", 50)


@pytest.mark.parametrize(
    ("ended", "seen"),
    [
        ((), ()),
        ((job(1, DONE), job(2, DONE)), (1,)),
        ((job(1, FAILED), job(2, FAILED), job(3, CANCELLED), job(4, FAILED)), (1, 2, 3)),
        ((job(1, FAILED), job(2, DONE, Kind.EVAL), job(3, FAILED)), (1, 3)),
        (tuple(job(number, FAILED) for number in range(1, 15)), tuple(range(1, 11))),
    ],
)
def test_recent_jobs_go_back_to_the_last_that_did_not_fail(ended, seen):
    assert [view.job.job_id for view in rules.jobs.recent(run(*ended))] == [f"r:{number}" for number in seen]


def test_games_go_to_the_front_of_the_pool_and_suspects_to_its_back():
    state = run(job(1, LEASED, held=(3, 1, 8, 9, 7)), pool=(4, 6), strikes={3: 1, 8: 2, 9: 5, 6: 2})
    after = give_back(state, 1)
    assert after.pool == (1, 3, 7, 4, 6, 9, 8)
    assert after.jobs[1].held == frozenset()


def test_a_bad_end_gives_the_job_its_next_attempt():
    state = run(job(1, LEASED, held=(1,), failures=1), open=games((1,)))
    after = end_lease(state, 50, 1, "why", 3)
    assert after.jobs[1].failures == 2
    again: dict[str, Any] = {"state": QUEUED, "attempt": 4, "lease_until_ms": 0, "published_ms": 0, "claimed_ms": 0, "error": "why"}
    assert after.jobs[1].view == replace(state.jobs[1].view, **again)
    assert (after.pool, after.strikes) == ((1,), {1: 1})


@pytest.mark.parametrize(
    ("cancel", "failures", "most", "how"), [(False, 1, 2, FAILED), (False, 2, 2, FAILED), (False, 0, 2, QUEUED), (True, 5, 2, CANCELLED)]
)
def test_a_job_is_over_after_so_many_bad_leases_or_when_it_was_cancelled(cancel, failures, most, how):
    after = end_lease(run(job(1, LEASED, cancel=cancel, failures=failures)), 50, 1, "why", most)
    assert (after.jobs[1].view.state, after.jobs[1].view.lease_until_ms, after.jobs[1].view.error) == (how, 0, "why")
    assert after.jobs[1].view.ended_ms == (0 if how is QUEUED else 50)


@pytest.mark.parametrize(("strikes", "failures"), [({}, 2), ({1: 1}, 2), ({1: 2}, 1)])
def test_a_lease_that_died_of_suspects_is_not_the_jobs_failure(strikes, failures):
    state = run(job(1, LEASED, held=(1,), failures=1), open=games((1,)), strikes=strikes)
    assert end_lease(state, 50, 1, "why", 3).jobs[1].failures == failures
