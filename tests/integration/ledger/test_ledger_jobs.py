"""What the ledger promises of jobs and their messages."""

from __future__ import annotations

import pytest

from azq.errors import NotFound, StateConflict
from azq.ledger.types import KEPT_ENDED_JOBS, Directive, JobState, RunState
from azq.wire.kinds import Kind
from azq.wire.messages import Job


def test_a_job_is_claimed_once(world):
    view = world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cuda", priority=3, games=7, slice_s=2.5, payload=b"\0\xff"))
    assert (view.state, view.attempt, view.published_ms) == (JobState.QUEUED, 1, 0)
    world.ledger.mark_published("r:1", 1)
    assert world.ledger.claim("r:1", 2, "w1", 10) is None
    lease = world.ledger.claim("r:1", 1, "w1", 10)
    assert lease is not None
    assert lease.job == view.job
    assert (lease.job.priority, lease.job.games, lease.job.slice_s, lease.job.payload) == (3, 7, 2.5, b"\0\xff")
    assert world.ledger.claim("r:1", 1, "w1", 10) is None
    assert world.ledger.claim("r:1", 1, "w2", 10) is None
    assert world.ledger.claim("r:99", 1, "w2", 10) is None
    leased = world.ledger.job("r:1")
    assert (leased.state, leased.owner, leased.lease_until_ms) == (JobState.LEASED, "w1", world.now + 10_000)


@pytest.mark.parametrize("job_id", ["", "r", "r:", "r:x", ":1", "r:1:", "zz:1", "r:7", "r:01", "r:١"])
def test_an_unknown_job_is_not_found(world, job_id):
    assert world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id == "r:1"
    for call in (world.ledger.job, world.ledger.cancel, lambda text: world.ledger.requeue(text, 1)):
        with pytest.raises(NotFound, match="no job"):
            call(job_id)


def test_jobs_of_a_paused_run_wait_and_of_a_finished_run_only_evaluate(world):
    selfplay, evaluation = (world.ledger.enqueue(Job("", "r", kind, "cpu")).job.job_id for kind in (Kind.SELFPLAY, Kind.EVAL))
    world.ledger.set_run_state("r", RunState.PAUSED)
    assert world.ledger.claim(selfplay, 1, "w", 10) is None
    assert world.ledger.claim(evaluation, 1, "w", 10) is None
    world.ledger.set_run_state("r", RunState.FINISHED)
    assert world.ledger.claim(selfplay, 1, "w", 10) is None
    lease = world.ledger.claim(evaluation, 1, "w", 10)
    assert lease is not None
    assert world.ledger.renew(lease) is Directive.GO_ON
    world.ledger.set_run_state("r", RunState.RUNNING)
    assert world.ledger.claim(selfplay, 1, "w", 10) is not None


def test_a_mark_of_an_ended_job_comes_too_late(world):
    for _ in range(4):
        world.ledger.enqueue(Job("", "r", Kind.EVAL, "cpu"))
    world.ledger.cancel("r:2")
    world.ledger.cancel("r:3")
    assert [view.job.job_id for view in world.ledger.jobs()] == ["r:1", "r:4"]
    world.ledger.mark_published("r:2", 1)
    assert [view.job.job_id for view in world.ledger.jobs("r")] == ["r:1", "r:4"]


def test_only_the_newest_ended_jobs_are_kept(world):
    for _ in range(KEPT_ENDED_JOBS + 5):
        world.ledger.cancel(world.ledger.enqueue(Job("", "r", Kind.EVAL, "cpu")).job.job_id)
    assert len(world.ledger.jobs_below("r", active_only=False, limit=1000)) == KEPT_ENDED_JOBS
    with pytest.raises(NotFound, match="newest 200 ended jobs"):
        world.ledger.job("r:5")
    assert world.ledger.job("r:6").state is JobState.CANCELLED


def test_a_lost_message_gets_a_new_attempt_that_old_copies_cannot_claim(world):
    world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    world.ledger.mark_published("r:1", 1)
    view = world.ledger.requeue("r:1", 1)
    assert (view.attempt, view.published_ms, view.state) == (2, 0, JobState.QUEUED)
    assert world.ledger.claim("r:1", 1, "late", 10) is None
    with pytest.raises(StateConflict):
        world.ledger.requeue("r:1", 1)
    assert world.ledger.claim("r:1", 2, "w", 10) is not None
    with pytest.raises(StateConflict, match="leased"):
        world.ledger.requeue("r:1", 2)


def test_lost_messages_do_not_use_up_a_jobs_attempts(world):
    world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    for attempt in range(1, 9):
        world.ledger.requeue("r:1", attempt)
    world.ledger.claim("r:1", 9, "w", 1)
    world.pass_s(2)
    assert world.ledger.expire("r", 2)[0].state is JobState.QUEUED


#: as an azq wrote it that spelt a job out, before its frame stood in the hash
