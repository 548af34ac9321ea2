"""Rules of a run's one learner: whose place it is at each moment, and which numbers it may change."""

from __future__ import annotations

import pytest
from ledger_states import games, run

from azq.errors import StateConflict
from azq.ledger import rules
from azq.ledger.rules.learner import WRITTEN_OFF, held_by, refuse
from azq.ledger.types import LearnerLease

ALPHA, BETA = "alpha:1:1:x", "beta:2:2:x"
TAKEN = rules.state.LearnerRow(ALPHA, 4, 1000)


def lease(holder: str = ALPHA, token: int = 4) -> LearnerLease:
    return LearnerLease("r", holder, token, 2.5)


@pytest.mark.parametrize(("now_ms", "holder", "dead"), [(1000, BETA, ""), (5000, BETA, ""), (999, ALPHA, ""), (999, BETA, ALPHA)], ids=str)
def test_a_place_that_is_free_ones_own_or_a_dead_ones_is_taken_with_the_next_token(now_ms, holder, dead):
    state, answer = rules.learner.take_learner(run(learner=TAKEN), now_ms, holder, 2.5, dead)
    assert state.learner == rules.state.LearnerRow(holder, 5, now_ms + 2500)
    assert answer == holder


def test_a_place_is_not_taken_from_who_lives():
    state = run(learner=TAKEN)
    assert rules.learner.take_learner(state, 999, BETA, 2.5, "gamma:3:3:x") == (state, ALPHA)


def test_renewing_lengthens_and_ending_frees():
    state = run(learner=TAKEN)
    assert rules.learner.renew_learner(state, 5000, lease()).learner == rules.state.LearnerRow(ALPHA, 4, 7500)
    assert rules.learner.end_learner(state, lease()).learner == rules.state.LearnerRow(ALPHA, 4, 0)


@pytest.mark.parametrize(
    ("row", "used"), [(TAKEN, lease()), (TAKEN, lease(token=5)), (TAKEN, lease(BETA, 5)), (rules.state.LearnerRow(), None)]
)
def test_who_commits(row, used):
    rules.learner.check_learner(run(learner=row), used)


@pytest.mark.parametrize("used", [lease(token=3), lease(BETA), None])
def test_who_lost_the_place_commits_nothing(used):
    state = run(learner=TAKEN)
    said = r"another learner \(pid 1 on alpha\) took over run r; nothing was committed"
    with pytest.raises(StateConflict, match=said):
        rules.learner.check_learner(state, used)
    with pytest.raises(StateConflict, match=said):
        rules.learner.record_inserted(state, used, 1, 1, {})
    with pytest.raises(StateConflict, match=said):
        rules.learner.restore(state, used, 1, 1, [])
    if used is not None:
        with pytest.raises(StateConflict, match=said):
            rules.learner.renew_learner(state, 0, used)
        with pytest.raises(StateConflict, match=said):
            rules.learner.end_learner(state, used)


def test_who_finds_the_place_taken_hears_by_whom():
    assert held_by("r", ALPHA) == "another learner (pid 1 on alpha) trains run r; stop it first"


def test_inserted_games_are_counted_and_refused_ones_abandoned():
    state = run(opened=9, finished=7, open=games((8,)), abandoned={9: "old"}, inserted=2, duplicates_dropped=1)
    after = rules.learner.record_inserted(state, None, 5, 3, {1: "bad", 8: "open", 9: "again", 10: "forged"})
    assert (after.inserted, after.duplicates_dropped, after.finished) == (5, 3, 6)
    assert after.abandoned == {1: "bad", 9: "old"}


def test_the_newest_game_may_be_refused_and_none_that_was_never_opened():
    state = run(opened=2, finished=2)
    assert refuse(state, {2: "bad", 3: "forged"}).abandoned == {2: "bad"}
    assert refuse(state, {1: "bad", 2: "bad"}).finished == 0


@pytest.mark.parametrize(
    ("opened", "highest", "missing", "wanted"),
    [
        (0, 0, [], (0, 0, 2, 3, [])),
        (3, 20, [], (20, 20, 2, 3, [])),
        (20, 3, [], (20, 20, 2, 3, [])),
        (0, 20, [(2, 4), (9, 9)], (20, 16, 6, 3, [2, 3, 4, 9])),
    ],
)
def test_a_run_goes_on_from_its_log(opened, highest, missing, wanted):
    after = rules.learner.restore(run(opened=opened, written_off=2, restored=2), None, 7, highest, missing)
    assert (after.opened, after.finished, after.written_off, after.restored, sorted(after.abandoned)) == wanted
    assert after.inserted == 7
    assert set(after.abandoned.values()) <= {WRITTEN_OFF}


def test_games_that_somebody_plays_or_that_were_abandoned_are_not_written_off():
    after = rules.learner.restore(run(opened=3, open=games((2,)), abandoned={3: "old"}), None, 5, 9, [(1, 4)])
    assert after.abandoned == {1: WRITTEN_OFF, 3: "old", 4: WRITTEN_OFF}
    assert (after.finished, after.written_off) == (5, 2)
