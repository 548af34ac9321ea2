"""Runs that a host cannot serve: told, logged once a reason, tried again ever more rarely."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.errors import MissingExtra
from azq.inference.serve.unserved import AGAIN, MAX_REASON, Unserved

LIFE = ("r1", 7)


@given(st.integers(1, 10**6))
def test_pauses_grow_within_bounds(failures: int) -> None:
    assert AGAIN.first_s <= AGAIN.pause_s(failures) <= AGAIN.pause_s(failures + 1) <= AGAIN.longest_s


def test_the_first_pauses() -> None:
    assert [AGAIN.pause_s(count) for count in (1, 2, 3, 7, 8)] == [5.0, 10.0, 20.0, 300.0, 300.0]


def test_a_failure_is_told_until_it_is_mended(capsys) -> None:  # type: ignore[no-untyped-def]
    now_s = 0.0
    unserved = Unserved(lambda: now_s)
    assert unserved.due(LIFE)
    for seconds in (5.0, 10.0, 20.0):
        unserved.failed(LIFE, MissingExtra("needs open_spiel"))
        assert unserved.reasons == {"r1": "needs open_spiel"}
        now_s += seconds - 0.1
        assert not unserved.due(LIFE)
        now_s += 0.1
        assert unserved.due(LIFE)
    said = capsys.readouterr().out
    assert said.count("run_not_served") == said.count("run=r1") == 1
    unserved.mended(LIFE)
    assert "run=r1" in capsys.readouterr().out
    assert unserved.reasons == {}
    unserved.failed(LIFE, KeyError("x"))
    assert unserved.reasons == {"r1": "KeyError: 'x'"}
    assert not unserved.due(LIFE)


def test_a_run_made_again_begins_anew() -> None:
    unserved = Unserved(lambda: 0.0)
    unserved.failed(LIFE, ValueError("x"))
    assert unserved.due(("r1", 8))
    unserved.keep([("r1", 8)])
    assert unserved.reasons == {}


def test_a_reason_is_short() -> None:
    unserved = Unserved(lambda: 0.0)
    unserved.failed(LIFE, ValueError("x" * 2000))
    assert len(unserved.reasons["r1"]) == MAX_REASON


@pytest.mark.parametrize(("letters", "shown"), [(199, 199), (200, 200), (201, 200)])
def test_a_reason_has_two_hundred_letters_at_most(letters: int, shown: int) -> None:
    unserved = Unserved(lambda: 0.0)
    unserved.failed(LIFE, MissingExtra("x" * letters))
    assert len(unserved.reasons["r1"]) == shown


def test_any_number_of_failures_has_a_pause() -> None:
    assert AGAIN.pause_s(10**6) == 300.0


def test_another_reason_is_logged_anew_and_failures_are_counted_on(capsys) -> None:  # type: ignore[no-untyped-def]
    now_s = 100.0
    unserved = Unserved(lambda: now_s)
    for reason, pause_s in (("one", 5.0), ("two", 10.0), ("two", 20.0)):
        unserved.failed(LIFE, MissingExtra(reason))
        now_s += pause_s - 0.1
        assert not unserved.due(LIFE)
        now_s += 0.1
        assert unserved.due(LIFE)
    assert capsys.readouterr().out.count("run_not_served") == 2
    unserved.mended(LIFE)
    unserved.mended(LIFE)
    assert capsys.readouterr().out.count("run_served") == 1


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
