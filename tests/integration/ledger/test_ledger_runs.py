"""What the ledger promises of runs."""

from __future__ import annotations

import pytest
from ledger_worlds import record

from azq.errors import ConfigError, NotFound, StateConflict
from azq.ledger.types import KEPT_PAUSES, LOST_WITH_IT, RunState
from azq.wire import keys
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord


def test_a_run_is_created_once_and_listed(world):
    world.ledger.client.srem(keys.RUNS, "r")  # as a broker that is rolled back may
    with pytest.raises(StateConflict, match="run r exists already"):
        world.ledger.create_run(record("r"))
    with pytest.raises(ConfigError, match="run name"):
        world.ledger.create_run(record("a}b"))
    world.ledger.create_run(record("another"))
    assert [view.record.run for view in world.ledger.runs()] == ["another", "r"]
    world.ledger.client.srem(keys.RUNS, "r")
    world.ledger.set_run_state("r", RunState.PAUSED)
    assert world.ledger.runs()[1].record == world.ledger.run("r").record == record("r")


def test_an_unknown_run_is_named_with_those_there_are(world):
    for call in (world.ledger.run, world.ledger.counts, lambda run: world.ledger.enqueue(Job("", run, Kind.EVAL, "cpu"))):
        with pytest.raises(NotFound, match="no run 'zz'; there are: r"):
            call("zz")
    assert world.ledger.jobs("zz") == []
    assert world.ledger.expire("zz", 3) == []


def test_active_time_leaves_pauses_out(world):
    world.pass_s(5)
    assert world.ledger.run("r").active_ms == 5000
    world.ledger.set_run_state("r", RunState.PAUSED, "dinner")
    world.pass_s(100)
    view = world.ledger.run("r")
    assert (view.state, view.reason, view.active_ms) == (RunState.PAUSED, "dinner", 5000)
    world.ledger.set_run_state("r", RunState.RUNNING)
    world.pass_s(2)
    assert world.ledger.run("r").active_ms == 7000


def test_a_run_knows_when_it_did_not_run_an_end_that_was_none_included(world):
    created_ms = world.ledger.run("r").changed_ms
    for state in (RunState.PAUSED, RunState.FINISHED, RunState.RUNNING):
        world.pass_s(10)
        world.ledger.set_run_state("r", state)
    paused, over = world.ledger.run("r").pauses
    assert [at - created_ms for at in (*paused, *over)] == [10_000, 20_000, 20_000, 30_000]
    for _ in range(KEPT_PAUSES):
        for state in (RunState.PAUSED, RunState.RUNNING):
            world.ledger.set_run_state("r", state)
    assert len(world.ledger.run("r").pauses) == KEPT_PAUSES
    assert world.ledger.snapshot("r").view.pauses[0][0] - created_ms == 30_000, "the oldest were dropped"


def test_a_run_that_goes_on_sends_its_messages_again_for_they_were_refused(world):
    sent, held, unsent = (world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id for _ in range(3))
    for job in (sent, held):
        world.ledger.mark_published(job, 1)
    world.ledger.claim(held, 1, "w", 9.0)
    world.ledger.set_run_state("r", RunState.PAUSED)
    assert world.ledger.claim(sent, 1, "w", 9.0) is None
    world.ledger.set_run_state("r", RunState.RUNNING)
    views = {view.job.job_id: view for view in world.ledger.jobs("r")}
    assert [(views[job].attempt, bool(views[job].published_ms)) for job in (sent, held, unsent)] == [(2, False), (1, True), (1, False)]
    assert world.ledger.run("r").changed_job == 3
    assert world.ledger.claim(sent, 1, "w", 9.0) is None, "the message of before is refused"
    assert world.ledger.claim(sent, 2, "w", 9.0)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ([RunState.PAUSED, RunState.PAUSED, RunState.RUNNING], True),
        ([RunState.FINISHED, RunState.RUNNING], True),
        ([RunState.FAILED, RunState.RUNNING], True),
        ([RunState.FINISHED, RunState.PAUSED], False),
        ([RunState.FINISHED, RunState.FAILED], False),
        ([RunState.FAILED, RunState.FINISHED], False),
    ],
)
def test_run_states(world, path, allowed):
    *first, last = path
    for state in first:
        world.ledger.set_run_state("r", state)
    if allowed:
        assert world.ledger.set_run_state("r", last).state is last
    else:
        with pytest.raises(StateConflict, match="cannot become"):
            world.ledger.set_run_state("r", last)
        assert world.ledger.run("r").state is first[-1]


def test_a_runs_record_can_be_changed(world):
    assert world.ledger.update_run_until("r", {"minutes": 3}).record == RunRecord("r", b"{}", {"minutes": 3}, "folder", 1)
    changed = RunRecord("r", b"{1}", {}, "elsewhere", 2)
    assert world.ledger.update_run(changed).record == changed
    with pytest.raises(NotFound):
        world.ledger.update_run(record("zz"))


def test_some_runs_are_read_and_those_that_stir_are_known(world):
    for name in ("a", "b", "c"):
        world.ledger.create_run(record(name))
    assert world.ledger.names() == ["a", "b", "c", "r"]
    assert [view.record.run for view in world.ledger.runs(["b", "r", "gone"])] == ["b", "r"]
    assert world.ledger.runs([]) == world.ledger.stirring([]) == []
    for name in ("a", "b", "c"):
        world.ledger.set_run_state(name, RunState.FINISHED)
    view = world.ledger.enqueue(Job("", "b", Kind.EVAL, "cpu"))
    assert world.ledger.stirring(["a", "b", "c", "r", "gone"]) == ["b", "r"]
    lease = world.ledger.claim(view.job.job_id, 1, "w", 9.0)
    assert world.ledger.stirring(["a", "b"]) == ["b"]
    world.ledger.complete(lease, b"")
    assert world.ledger.stirring(["a", "b"]) == []


def test_who_watches_hears_what_becomes_of_a_run_and_of_its_jobs(world):
    world.ledger.fail(world.lease(), "died")
    world.ledger.set_run_state("r", RunState.PAUSED, "lunch")
    world.ledger.restore("r", 0, 2, [(1, 2)])
    job = {"job": "1", "kind": "selfplay", "tag": "cpu", "attempt": "1", "owner": "", "error": ""}
    assert world.heard() == [
        ("run.running", {"reason": ""}),
        ("job.queued", job),
        ("job.leased", {**job, "owner": "w1"}),
        ("job.requeued", {**job, "attempt": "2", "owner": "w1", "error": "died"}),
        ("run.paused", {"reason": "lunch"}),
        ("run.restored", {"games": "0", "written_off": "2", "lost": LOST_WITH_IT}),
    ]


def test_a_look_shows_ended_jobs_that_make_games_back_to_the_last_that_did_not_fail(world):
    for failed in (True, False, True, True):
        lease = world.lease()
        if failed:
            world.ledger.fail(lease, "died", max_attempts=1)
        else:
            world.ledger.release(lease, [])
    world.ledger.complete(world.lease(Kind.EVAL), b"result")
    assert [view.job.job_id for view in world.ledger.snapshot("r").ended] == ["r:4", "r:3", "r:2"]
