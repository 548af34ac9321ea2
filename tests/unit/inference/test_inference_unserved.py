"""Runs that a host cannot serve: told, logged once a reason, tried again ever more rarely."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from azq.errors import MissingExtra
from azq.inference.unserved import FIRST_S, LONGEST_S, MAX_REASON, Unserved, retry_after_s

LIFE = ("r1", 7)


@given(st.integers(1, 10**6))
def test_pauses_grow_within_bounds(failures: int) -> None:
    assert FIRST_S <= retry_after_s(failures) <= retry_after_s(failures + 1) <= LONGEST_S


def test_the_first_pauses() -> None:
    assert [retry_after_s(count) for count in (1, 2, 3, 7, 8)] == [5.0, 10.0, 20.0, 300.0, 300.0]


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
    assert capsys.readouterr().out.count("run_not_served") == 1
    unserved.mended(LIFE)
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
