"""The steps that the ledger's rules share, at their limits."""

from __future__ import annotations

import pytest
from ledger_states import CANCELLED, DONE, FAILED, LEASED, QUEUED, job, lease, run

from azq.errors import LeaseLost
from azq.ledger import rules
from azq.ledger.rules.state import ended_by, is_active, leased_row, may_work
from azq.ledger.types import RunState
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord


def test_a_new_run_has_nothing_and_runs():
    state = rules.state.State(RunRecord("r", b"", {}, "", 0), 5)
    counted = (state.opened, state.finished, state.inserted, state.duplicates_dropped, state.written_off, state.restored, state.active_ms)
    assert counted == (0,) * 7
    assert (state.state, state.sound, state.learner) == (RunState.RUNNING, False, rules.state.LearnerRow("", 0, 0))
    assert rules.jobs.enqueue(state, 5, Job("", "r", Kind.SELFPLAY, "cpu"))[1].job.job_id == "r:1"


def test_who_asks_for_what_is_not_there_hears_what_is():
    assert str(rules.state.no_run("zz", ["r", "s"])) == "no run 'zz'; there are: r, s"
    assert str(rules.state.no_run("tt", ["ttt"])) == "no run 'tt'; did you mean ttt?; there are: ttt"
    assert str(rules.state.no_run("zz", [])) == "no run 'zz'; there are: none"
    assert str(rules.state.no_job("r", 4)).startswith("no job r:4; only the newest 200 ended jobs")


@pytest.mark.parametrize(("lease_s", "milliseconds"), [(0.0, 1), (0.0014, 1), (0.0016, 2), (5.0, 5000)])
def test_a_lease_lasts_whole_milliseconds(lease_s, milliseconds):
    assert rules.state.lease_ms(lease_s) == milliseconds


def test_the_number_of_a_lease_is_that_of_its_job():
    assert rules.state.number_of(lease(120)) == 120


@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        (RunState.RUNNING, ["selfplay", "eval"]),
        (RunState.PAUSED, []),
        (RunState.FINISHED, ["eval"]),
        (RunState.FAILED, []),
    ],
)
def test_what_a_run_wants(state, kinds):
    assert [kind for kind in (Kind.SELFPLAY, Kind.EVAL) if may_work(run(state=state), job(1, kind=kind))] == kinds


def test_queued_and_leased_jobs_are_active():
    assert [of for of in (QUEUED, LEASED, DONE, FAILED, CANCELLED) if is_active(job(1, of))] == [QUEUED, LEASED]


@pytest.mark.parametrize("used", [lease(2), lease(attempt=2), lease(attempt=4), lease(owner="v")])
def test_only_who_was_given_a_lease_has_it(used):
    state = run(job(1, LEASED))
    assert leased_row(state, lease()) == (1, state.jobs[1])
    with pytest.raises(LeaseLost, match=f"{used.owner} lost job {used.job.job_id}, attempt {used.attempt}"):
        leased_row(state, used)


@pytest.mark.parametrize("of", [QUEUED, DONE])
def test_a_job_that_is_not_leased_has_no_lease(of):
    with pytest.raises(LeaseLost):
        leased_row(run(job(1, of, owner="w")), lease())


@pytest.mark.parametrize(
    ("row", "used", "is_so"),
    [
        (job(1, DONE, owner="w", released=True), lease(), True),
        (job(1, DONE, owner="w"), lease(), False),
        (job(1, DONE, owner="v", released=True), lease(), False),
        (job(1, DONE, owner="w", released=True), lease(attempt=2), False),
        (job(2, DONE, owner="w", released=True), lease(), False),
    ],
)
def test_who_ended_a_job_well(row, used, is_so):
    assert ended_by(run(row), used) is is_so


def test_two_hundred_ended_jobs_are_kept():
    ended = tuple(range(300, 100, -1))
    state = run(*(job(number, DONE) for number in ended), job(301, LEASED), job(302), ended=ended)
    state = rules.games.release(state, 50, lease(301), [])
    assert state.ended == tuple(range(301, 101, -1))
    assert sorted(state.jobs) == list(range(102, 303))
    assert state.queue == ((10, 302),)


def test_jobs_of_one_moment_wait_in_the_order_of_their_names():
    state = run(job_seq=8)
    for _ in range(3):
        state, _ = rules.jobs.enqueue(state, 5, Job("", "r", Kind.SELFPLAY, "cpu"))
    state, _ = rules.jobs.enqueue(state, 4, Job("", "r", Kind.SELFPLAY, "cpu"))
    assert state.queue == ((4, 12), (5, 10), (5, 11), (5, 9))  # as text: the server sorts so
