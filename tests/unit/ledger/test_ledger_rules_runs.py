"""Rules of runs: which states follow which, what time counts, what others hear."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledger_states import DONE, LEASED, QUEUED, job, run

from azq.config import SelfPlayConfig
from azq.errors import ConfigError, StateConflict
from azq.ledger import rules
from azq.ledger.rules.runs import LOST_WITH_IT
from azq.ledger.rules.state import KEPT_PAUSES, State
from azq.ledger.rules.strikes import REASON
from azq.ledger.types import RunState
from azq.wire.messages import RunRecord

RUNNING, PAUSED, FINISHED, BROKEN = RunState


@pytest.mark.parametrize(
    ("sections", "games"),
    [
        (b'{"selfplay": {"max_waiting_games": 7, "games": 2}}', 7),
        (b'{"learner": {}}', SelfPlayConfig().max_waiting_games),
        (b"noise", SelfPlayConfig().max_waiting_games),
        (b'{"selfplay": {"max_waiting_games": "many"}}', SelfPlayConfig().max_waiting_games),
    ],
)
def test_games_that_may_wait_are_the_settings_or_the_default(sections, games):
    assert rules.runs.max_waiting(RunRecord("r", sections, {}, "", 1)) == games


@pytest.mark.parametrize(("sections", "games"), [(b'{"learner": {"lockstep_games": 7}}', 7), (b'{"learner": {}}', 0), (b"noise", 0)])
def test_games_of_a_version_are_any_number_but_in_lockstep(sections, games):
    assert rules.runs.per_version(RunRecord("r", sections, {}, "", 1)) == games


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in ("a" * 64, "a-1_b")),
        *((name, False) for name in ("a" * 65, "", "A", "Upper", "a:b", "../up", "with space")),
    ],
)
def test_run_names(name, is_one):
    if is_one:
        assert rules.runs.check_run_name(name) == name
    else:
        with pytest.raises(ConfigError, match="choose another"):
            rules.runs.check_run_name(name)


@pytest.mark.parametrize(("state", "now_ms", "active_ms"), [(RUNNING, 70, 105), (RUNNING, 20, 100), (PAUSED, 70, 100), (FINISHED, 70, 100)])
def test_active_time_is_time_spent_running(state, now_ms, active_ms):
    view = rules.runs.run_view(run(state=state, changed_ms=65, active_ms=100, reason="why"), now_ms)
    assert (view.active_ms, view.changed_ms, view.state, view.reason, view.record.run) == (active_ms, 65, state, "why", "r")


def test_a_change_of_state_keeps_the_active_time_and_says_when():
    after = rules.runs.set_run_state(run(changed_ms=65, active_ms=100), 70, PAUSED, "why")
    assert (after.state, after.reason, after.active_ms, after.changed_ms) == (PAUSED, "why", 105, 70)


def test_a_pause_is_kept_once_it_is_over_and_the_oldest_go():
    paused = rules.runs.set_run_state(run(changed_ms=65), 70, PAUSED, "")
    assert paused.pauses == ()
    state = rules.runs.set_run_state(paused, 90, RUNNING, "")
    assert state.pauses == ((70, 90),)
    for number in range(KEPT_PAUSES):
        state = rules.runs.set_run_state(rules.runs.set_run_state(state, 100 + 2 * number, PAUSED, ""), 101 + 2 * number, RUNNING, "")
    assert len(state.pauses) == KEPT_PAUSES
    assert (state.pauses[0], state.pauses[-1]) == ((100, 101), (98 + 2 * KEPT_PAUSES, 99 + 2 * KEPT_PAUSES))


@pytest.mark.parametrize(("old", "new"), [(FINISHED, PAUSED), (FINISHED, BROKEN), (BROKEN, PAUSED), (BROKEN, FINISHED)])
def test_what_ended_is_resumed_first(old, new):
    with pytest.raises(StateConflict, match=f"run r is {old} and cannot become {new}; resume it first"):
        rules.runs.set_run_state(run(state=old), 70, new, "")


@pytest.mark.parametrize("same", list(RunState))
def test_the_state_it_has_changes_nothing(same):
    state = run(state=same, reason="old")
    assert rules.runs.set_run_state(state, 70, same, "new") is state


IDLE = (job(1), job(2, DONE, owner="w"))
LEARNER = rules.state.LearnerRow("alpha:1", 4, 1000)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (run(state=RUNNING), "run r is running; pause or finish it, then delete it"),
        (run(*IDLE, job(3, LEASED), state=PAUSED), "w still holds a job of run r; it gives it back within seconds, then delete the run"),
        (run(*IDLE, state=FINISHED, learner=LEARNER), "alpha:1 still learns run r; stop it, then delete the run"),
    ],
)
def test_a_run_that_somebody_works_on_is_not_deleted(state, said):
    with pytest.raises(StateConflict, match=f"^{said}$"):
        rules.runs.check_deletable(state, 999)


@pytest.mark.parametrize("rests", [PAUSED, FINISHED, BROKEN])
def test_a_run_that_rests_is_deleted_as_soon_as_its_learners_place_is_free(rests):
    rules.runs.check_deletable(run(*IDLE, state=rests, learner=LEARNER), 1000)
    rules.runs.check_deletable(run(*IDLE, state=rests), 0)


def test_a_new_run_is_heard_of_with_all_its_jobs():
    assert rules.runs.events(None, run(job(1), reason="why")) == [
        ("run.running", {"reason": "why"}),
        ("job.queued", {"job": "1", "kind": "selfplay", "tag": "cpu", "attempt": "3", "owner": "", "error": ""}),
    ]


def kinds(before: State, after: State) -> list[str]:
    return [kind for kind, _ in rules.runs.events(before, after)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (job(1), job(1), []),
        (job(1), job(1, published_ms=99), []),
        (job(1), job(1, LEASED), ["job.leased"]),
        (job(1), job(1, attempt=4), ["job.requeued"]),
        (job(1, LEASED), job(1, QUEUED, attempt=4), ["job.requeued"]),
        (job(1, LEASED), job(1, LEASED, attempt=4), ["job.leased"]),
        (job(1, LEASED), job(1, DONE), ["job.done"]),
        (job(2), job(1), ["job.queued"]),
    ],
)
def test_what_is_heard_of_a_job(old, new, said):
    assert kinds(run(old), run(new)) == said


def test_a_change_of_state_is_heard_and_none_is_not():
    assert kinds(run(), run(state=PAUSED)) == ["run.paused"]
    assert kinds(run(), run()) == []


@pytest.mark.parametrize(
    ("before", "written_off"), [(run(restored=1, written_off=3), "4"), (run(restored=1), "7"), (None, "7")], ids=["later", "first", "new"]
)
def test_a_run_that_goes_on_from_its_folder_says_what_was_lost_with_it(before, written_off):
    told = [about for kind, about in rules.runs.events(before, run(restored=2, written_off=7, inserted=12)) if kind == "run.restored"]
    assert told == [{"games": "12", "written_off": written_off, "lost": LOST_WITH_IT}]
    assert kinds(run(restored=2), run(restored=2, written_off=7)) == []
    assert kinds(None, run(restored=1)) == ["run.running", "run.restored"]


def test_games_set_aside_are_heard_of_once_and_others_abandoned_are_not():
    before = run(abandoned={1: REASON})
    after = replace(before, abandoned={1: REASON, 3: REASON, 2: REASON, 4: "illegal"})
    about = [{"game": uid, "reason": REASON} for uid in ("2", "3")]
    assert rules.runs.events(before, after) == [("game.set_aside", one) for one in about]
