"""Pauses grow to a bound, and a look that answers ends the waiting."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE_S

from azq.errors import EvaluationTimeout
from azq.waiting import LONGEST_WAIT_S, NOTICED_AFTER_S, AwakeClock, Backoff, Waits, meanwhile, until

BACKOFF = Backoff(0.1, 2.0)


def test_pauses_double() -> None:
    assert [BACKOFF.pause_s(failures) for failures in range(1, 7)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0])


@given(st.floats(0.01, 60.0), st.floats(1.0, 10.0), st.integers(0, 10**9))
def test_any_number_of_failures_has_a_pause(first_s: float, times: float, failures: int) -> None:
    backoff = Backoff(first_s, first_s * times)
    assert backoff.pause_s(failures) <= backoff.pause_s(failures + 1) <= backoff.longest_s
    assert (backoff.pause_s(failures) == 0.0) == (failures == 0)


@pytest.mark.parametrize("answer", [0, "", True, 7])
def test_the_first_answer_that_is_neither_none_nor_false_counts(answer: object) -> None:
    answers = iter([None, False, answer, 8])
    assert until(lambda: next(answers), "nothing", 60.0, every_s=0.0) is answer


def test_what_did_not_come_is_named() -> None:
    with pytest.raises(EvaluationTimeout, match="no daemon"):
        until(lambda: None, "no daemon", 0.0)
    with pytest.raises(EvaluationTimeout, match="no learner"):
        until(lambda: False, lambda: "no learner", 0.0)


def test_a_thread_works_meanwhile_and_is_awaited() -> None:
    said: list[str] = []

    def work(ended: threading.Event) -> None:
        assert ended.wait(PATIENCE_S)
        said.append(threading.current_thread().name)

    def block() -> None:
        with meanwhile("helper", work):
            said.append("block")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert said == ["block", "helper"]


def test_a_clock_of_who_is_awake_leaves_out_what_he_slept() -> None:
    now = [50.0]
    awake_s = AwakeClock(lambda: now[0], longest_s=2.0)
    read = []
    for passed_s in (0.5, 3600.0, 2.0, 0.0, 1.5):
        now[0] += passed_s
        read.append(awake_s())
    assert read == [0.5, 2.5, 4.5, 4.5, 6.0]


def test_a_thread_that_waits_is_excused_for_as_long_as_one_wait_may_last() -> None:
    now, other = [50.0], threading.get_ident() + 1
    waits, me = Waits(lambda: now[0]), threading.get_ident()
    assert not waits.excuse(me)
    with waits.here():
        assert not waits.excuse(me)  # a call that is quick is work
        now[0] += NOTICED_AFTER_S
        assert (waits.excuse(me), waits.excuse(other)) == (True, False)
        with waits.here():
            assert not waits.excuse(me)
        assert waits.excuse(me)
        now[0] += LONGEST_WAIT_S
        assert not waits.excuse(me)  # no broker has it wait for so long
    now[0] -= LONGEST_WAIT_S
    assert not waits.excuse(me)
