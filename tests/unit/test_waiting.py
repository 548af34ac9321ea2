"""Pauses grow to a bound, and a look that answers ends the waiting."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.errors import EvaluationTimeout
from azq.waiting import Backoff, meanwhile, until

BACKOFF = Backoff(0.1, 2.0)


def test_pauses_double() -> None:
    assert [BACKOFF.pause_s(failures) for failures in range(1, 7)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0])


def test_pauses_grow_to_a_bound() -> None:
    waits = [BACKOFF.pause_s(failures) for failures in range(1, 12)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.1)
    assert waits[-1] == 2.0


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
        assert ended.wait(30)
        said.append(threading.current_thread().name)

    def block() -> None:
        with meanwhile("helper", work):
            said.append("block")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert said == ["block", "helper"]
