"""How a lease ends badly: where its games go, whose failure it is, when the job is over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledger_states import CANCELLED, FAILED, LEASED, QUEUED, games, job, run

from azq.ledger.rules.leases import end_lease, give_back


def test_games_go_to_the_front_of_the_pool_and_suspects_to_its_back():
    state = run(job(1, LEASED, held=(3, 1, 8, 9, 7)), pool=(4, 6), strikes={3: 1, 8: 2, 9: 5, 6: 2})
    after = give_back(state, 1)
    assert after.pool == (1, 3, 7, 4, 6, 9, 8)
    assert after.jobs[1].held == frozenset()


def test_a_bad_end_gives_the_job_its_next_attempt():
    state = run(job(1, LEASED, held=(1,), failures=1), open=games((1,)))
    after = end_lease(state, 50, 1, "why", 3)
    assert after.jobs[1].failures == 2
    again = {"state": QUEUED, "attempt": 4, "lease_until_ms": 0, "published_ms": 0, "claimed_ms": 0, "error": "why"}
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
