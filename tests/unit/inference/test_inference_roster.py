"""How many requests it takes to follow runs, most of which are over."""

from __future__ import annotations

import pytest
from inference_doubles import OneRun

from azq.errors import MissingExtra
from azq.inference.serve.roster import AGAIN, POLL_S, REST_AFTER_MS, REST_POLL_S, Roster, Unserved, rests
from azq.ledger.types import RunState, RunView
from azq.wire.messages import RunRecord

NOW_MS = 10 * REST_AFTER_MS


def view(name: str, state: RunState = RunState.RUNNING, changed_ms: int = 0) -> RunView:
    return RunView(RunRecord(name, b"{}", {}, "", 0), state, "", 0, changed_ms)


class Place:
    """A roster whose clock is set forward by hand."""

    def __init__(self, *views: RunView) -> None:
        self.now_s = 0.0
        self.runs = OneRun()
        self.runs.views = {one.record.run: one for one in views}
        self.wanted: set[str] = set()
        self.roster = Roster(self.runs, lambda: self.wanted, lambda: self.now_s, lambda: NOW_MS + int(self.now_s * 1000))
        self.served: set[str] = set()

    def pass_s(self, seconds: float) -> set[str]:
        """Looks as a follower does, ten times a second; the runs served at the end."""
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            if (found := self.roster.poll()) is not None:
                self.served = set(found)
        return self.served


def test_a_thousand_finished_runs_cost_next_to_nothing() -> None:
    old = [view(f"old{number:04}", RunState.FINISHED) for number in range(1000)]
    place = Place(view("a"), view("b", RunState.PAUSED, NOW_MS), *old)
    assert place.pass_s(2) == {"a", "b"}
    place.runs.whole = place.runs.glanced_at = place.runs.lists = 0
    assert place.pass_s(60) == {"a", "b"}
    assert place.runs.lists <= 60 / POLL_S
    assert place.runs.whole <= 2 * 60 / POLL_S  # all of them four times a second would be 240,000
    assert place.runs.glanced_at <= 1000 * 60 / REST_POLL_S


def test_a_run_that_comes_or_goes_is_noticed_at_the_next_look() -> None:
    place = Place(view("a"))
    place.pass_s(1)
    place.runs.views["b"] = view("b")
    assert place.pass_s(2 * POLL_S) == {"a", "b"}
    place.runs.views.clear()
    assert place.pass_s(2 * POLL_S) == set()


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.FINISHED])
def test_an_old_run_sleeps_and_wakes_when_it_goes_on_or_has_jobs(state: RunState) -> None:
    place = Place(view("a"), view("old", state))
    assert place.pass_s(1) == {"a"}
    place.runs.busy.add("old")
    assert place.pass_s(REST_POLL_S + 1) == {"a", "old"}
    assert place.pass_s(3 * REST_POLL_S) == {"a", "old"}, "as long as it has them"
    place.runs.busy.clear()
    assert place.pass_s(REST_POLL_S + 1) == {"a"}
    place.runs.views["old"] = view("old", changed_ms=NOW_MS)
    assert place.pass_s(REST_POLL_S + 1) == {"a", "old"}


def test_a_run_that_finishes_is_served_for_its_last_evaluation_and_a_failed_one_is_not() -> None:
    place = Place(view("a"), view("b"))
    place.pass_s(1)
    place.runs.views |= {"a": view("a", RunState.FINISHED, NOW_MS), "b": view("b", RunState.FAILED, NOW_MS)}
    place.runs.busy.add("b")
    assert place.pass_s(3 * REST_POLL_S) == {"a"}
    assert place.pass_s(REST_AFTER_MS / 1000) == set()


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.FINISHED, RunState.FAILED])
def test_a_run_that_somebody_plays_with_is_served_at_the_next_look_and_sleeps_when_nobody_does(state: RunState) -> None:
    place = Place(view("a"), view("old", state), view("older", state))
    assert place.pass_s(1) == {"a"}
    place.wanted = {"old", "deleted"}
    assert place.pass_s(2 * POLL_S) == {"a", "old"}
    assert place.pass_s(REST_AFTER_MS / 1000) == {"a", "old"}
    place.wanted = set()
    assert place.pass_s(2 * POLL_S) == {"a"}


@pytest.mark.parametrize(
    ("state", "age_ms", "expected"),
    [
        (RunState.RUNNING, 10**9, False),
        (RunState.PAUSED, 600_000, False),
        (RunState.PAUSED, 600_001, True),
        (RunState.FINISHED, 0, False),
        (RunState.FINISHED, 600_001, True),
        (RunState.FAILED, 0, True),
    ],
)
def test_what_rests_after_ten_minutes(state: RunState, age_ms: int, expected: bool) -> None:
    assert rests(view("r", state, NOW_MS - age_ms), NOW_MS) is expected


def test_it_looks_four_times_a_second_and_at_what_rests_every_five_seconds() -> None:
    place = Place(view("a"), view("old", RunState.FINISHED))
    looked: list[float] = []
    rested: list[float] = []
    for tick in range(0, 11_000, 10):
        place.now_s = tick / 1000
        plain = place.runs.glanced_at
        if place.roster.poll() is not None:
            looked.append(place.now_s)
        if place.runs.glanced_at > plain:
            rested.append(place.now_s)
    assert looked[:5] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert rested == [5.0, 10.0], "at first nobody is known to rest"


LIFE = ("r1", 7)


def test_a_failure_has_a_reason_until_it_is_mended_and_is_tried_again_after_growing_pauses(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    unserved = Unserved(lambda: now_s)
    assert unserved.due(LIFE)
    for reason, pause_s in (("one", 5.0), ("two", 10.0), ("two", 20.0), ("x" * 201, 40.0)):
        unserved.failed(LIFE, MissingExtra(reason))
        assert unserved.reasons == {"r1": reason[:200]}
        now_s += pause_s - 0.1
        assert not unserved.due(LIFE)
        now_s += 0.1
        assert unserved.due(LIFE)
    assert AGAIN.longest_s == 300.0
    assert capsys.readouterr().out.count("run_not_served") == 3, "each reason once"
    unserved.mended(LIFE)
    unserved.mended(LIFE)
    assert capsys.readouterr().out.count("run_served") == 1
    assert unserved.reasons == {}
    unserved.failed(LIFE, KeyError("x"))
    assert unserved.reasons == {"r1": "KeyError: 'x'"}
    assert unserved.due(("r1", 8)), "a run made again begins at nothing"


def test_runs_that_are_kept_stay_told_and_nothing_is_told_anew_where_all_are() -> None:
    unserved = Unserved(lambda: 0.0)
    other = ("r2", 7)
    for life in (LIFE, other):
        unserved.failed(life, MissingExtra(life[0]))
    told = unserved.reasons
    unserved.keep([LIFE, other, ("r3", 7)])
    assert unserved.reasons is told
    unserved.keep([other])
    assert unserved.reasons == {"r2": "r2"}
    assert unserved.due(LIFE)
    assert not unserved.due(other)
    assert told == {"r1": "r1", "r2": "r2"}, "which another thread may be reading"
