"""SIGINT and SIGTERM: a process is asked to stop. The first drains; whoever supervises others aborts at the second."""

from __future__ import annotations

import contextlib
import queue
import signal
from typing import Protocol


class StopSign(Protocol):
    """What a loop asks whether it is to end; `threading.Event` and `Interrupts` fulfil it."""

    def is_set(self) -> bool: ...
    def wait(self, seconds: float, /) -> bool: ...


class Interrupts(contextlib.AbstractContextManager["Interrupts"]):
    """Counts SIGINT and SIGTERM while it is entered.

    They are put into a SimpleQueue, which a signal's handler may do: it may run while this very thread holds the lock of an Event.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: signal.Signals | None = None
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
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
        self.count += 1
        self.last = signal.Signals(number)
        self._arrived.put(number)


class Aborted(Exception):
    """The operator asked twice to stop."""
