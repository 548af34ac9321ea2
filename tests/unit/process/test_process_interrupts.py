"""The first signal drains, the second aborts; a stop is seen by whoever waits for it."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from azq.process.interrupts import Aborted, Interrupts

LONG_S = 60.0


def later(number: int) -> threading.Timer:
    timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
    timer.start()
    return timer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
