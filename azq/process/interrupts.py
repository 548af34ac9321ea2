"""SIGINT, SIGTERM and SIGHUP: a process is asked to stop. The first drains; a supervisor aborts at the second.

SIGHUP comes when a terminal goes away, often twice, from the kernel and from the shell, which is one request; where it is ignored
(`nohup`) it stays so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import signal
import termios
from types import FrameType
from typing import Protocol

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSign(Protocol):
    """What a loop asks whether it is to end; `threading.Event` and `Interrupts` fulfil it."""

    def is_set(self) -> bool: ...
    def wait(self, seconds: float, /) -> bool: ...


def heeded() -> tuple[signal.Signals, ...]:
    """The signals that ask this process to stop."""
    return tuple(number for number in STOPS if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN))


def end_as_ctrl_c() -> None:
    """Lets SIGTERM and SIGHUP raise `KeyboardInterrupt` as SIGINT does, so that what this process started ends with it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)
            leave_terminal()
        signal.default_int_handler(number, frame)

    for number in {*heeded()} - {signal.SIGINT}:
        signal.signal(number, interrupt)


def leave_terminal() -> None:
    """Puts the null device where this process reads from and writes to a terminal that is gone: a drain must not fail at a line it says."""
    for stream in (0, 1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, stream)
                os.close(null)


class Interrupts(contextlib.AbstractContextManager["Interrupts"]):
    """Counts the signals that ask to stop while it is entered.

    They are put into a SimpleQueue, which a signal's handler may do: it may run while this very thread holds the lock of an Event.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: signal.Signals | None = None
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        for number in heeded():
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def is_set(self) -> bool:
        return self.count > 0

    def wait(self, seconds: float, /) -> bool:
        """Whether a stop was asked for, now or within that time."""
        if not self.count:
            self._sleep(seconds)
        return self.is_set()

    def pause(self, seconds: float) -> None:
        """Sleeps, unless a signal comes; raises `Aborted` on the second one."""
        if self.count >= 2:
            raise Aborted
        self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._arrived.get(timeout=seconds)

    def _handle(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)
            leave_terminal()
        self.count += 1
        self.last = signal.Signals(number)
        self._arrived.put(number)


class Aborted(Exception):
    """The operator asked twice to stop."""
