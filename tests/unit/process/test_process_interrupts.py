"""The first signal drains, the second aborts; a stop is seen by whoever waits for it."""

from __future__ import annotations

import os
import pty
import signal
import threading
import time

import pytest

from azq.process.interrupts import Aborted, Interrupts, end_as_ctrl_c, leave_terminal

LONG_S = 60.0


def later(number: int) -> threading.Timer:
    timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
    timer.start()
    return timer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_wait_and_every_later_one(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as stop:
        assert not stop.wait(0.0)
        assert not stop.is_set()
        began_s = time.monotonic()
        later(number)
        assert stop.wait(LONG_S)
        assert stop.is_set()
        assert stop.wait(LONG_S)
        assert stop.last is number
        assert time.monotonic() - began_s < LONG_S
    assert signal.getsignal(number) is before


def test_the_second_signal_aborts_and_the_first_does_not() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        interrupts.pause(LONG_S)
        interrupts.pause(0.0)
        assert interrupts.count == 1
        later(signal.SIGTERM)
        interrupts.pause(LONG_S)
        with pytest.raises(Aborted):
            interrupts.pause(LONG_S)


def test_a_terminal_that_goes_away_is_one_request_however_often_it_says_so() -> None:
    with Interrupts() as interrupts:
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        assert (interrupts.count, interrupts.last) == (1, signal.SIGHUP)


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_as_ctrl_c()
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)
        assert interrupts.count == 0
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_as_ctrl_c_does_is_not_interrupted_in_that_by_a_second_hang_up(number: signal.Signals) -> None:
    end_as_ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    if number is signal.SIGHUP:
        signal.raise_signal(number)


def test_a_line_for_a_terminal_that_is_gone_fails_nobody() -> None:
    ours, its = pty.openpty()
    child = os.fork()
    if child == 0:
        os.setsid()  # or the terminal's end would reach pytest
        for stream in (0, 1, 2):
            os.dup2(its, stream)
        os.close(its)
        os.close(ours)
        while True:
            try:
                os.write(1, b"x")
            except OSError:
                break
        leave_terminal()
        os._exit(os.write(1, b"draining") + os.write(2, b"!"))
    os.close(its)
    os.read(ours, 1)
    os.close(ours)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
