"""How long work may go on without a sign: long the first time, some times what it lately took, and then it hangs."""

from __future__ import annotations

import pytest

from azq.process.liveness import HANG_AFTER_S, LATE_S, STILL_S, TIMES, UNTRIED_S, WorkWatch, may_be_still_s

SLOW_S = 40.0


class Work:
    """Work, the one who looks after it each second, and their clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said = 0
        self.progress = WorkWatch(self.say, lambda: self.now_s)

    def say(self) -> None:
        self.said += 1

    def still(self, seconds: float, *, every_s: float = 1.0) -> float:
        """Nothing happens for so long; how much of that it was said to live."""
        before = self.said
        for _ in range(int(seconds / every_s)):
            self.now_s += every_s
            self.progress.look()
        return (self.said - before) * every_s


@pytest.fixture
def work() -> Work:
    return Work()


def test_patience_is_long_before_the_first_and_then_by_what_was_measured() -> None:
    assert may_be_still_s(0.0, untried=True) == UNTRIED_S
    assert may_be_still_s(0.05, untried=False) == STILL_S > HANG_AFTER_S
    assert may_be_still_s(SLOW_S, untried=False) == TIMES * SLOW_S


def test_a_hang_in_a_step_is_found(work: Work) -> None:
    for _ in range(100):
        work.now_s += 0.05
        work.progress.mark()
    assert work.still(1000) == pytest.approx(STILL_S, abs=2.0)


def test_a_first_step_may_take_long_and_a_hang_in_it_is_found_too(work: Work) -> None:
    with work.progress.does("step"):
        assert work.still(SLOW_S) == SLOW_S
        assert work.still(1000) == pytest.approx(UNTRIED_S - SLOW_S, abs=2.0)


def test_slow_steps_teach_patience_for_a_while(work: Work) -> None:
    with work.progress.does("step"):
        work.still(SLOW_S)
    work.progress.done("step")
    with work.progress.does("step"):
        assert work.still(3 * SLOW_S) == 3 * SLOW_S
    for _ in range(int(LATE_S) + 1):
        work.now_s += 1.0
        work.progress.mark()
    with work.progress.does("step"):
        assert work.still(1000) == pytest.approx(STILL_S, abs=2.0)


def test_other_work_and_work_within_work_have_their_own_first_time(work: Work) -> None:
    work.progress.done("publish")
    with work.progress.does("end"):
        with work.progress.does("publish"):
            assert not work.progress.untried
        assert work.progress.untried
    assert not work.progress.untried
    work.progress.done("publish", once=False)
    with work.progress.does("publish"):
        assert work.progress.untried


def test_marks_count_for_nothing_while_others_hang(work: Work) -> None:
    work.progress.others_get_on = lambda: False
    for _ in range(int(2 * STILL_S)):
        work.progress.mark()
        work.still(1)
    assert work.said == pytest.approx(STILL_S, abs=2.0)


def test_a_process_that_was_stopped_as_a_whole_was_not_still(work: Work) -> None:
    work.progress.mark()
    work.now_s += 3600.0
    assert work.still(STILL_S / 2) == STILL_S / 2
