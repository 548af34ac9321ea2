"""Ctrl-C for commands that supervise others: the first drains, the second aborts."""

from __future__ import annotations

import contextlib
import signal
import threading


class Interrupts(contextlib.AbstractContextManager["Interrupts"]):
    """Counts SIGINT and SIGTERM: the first drains, the second aborts."""

    def __init__(self) -> None:
        self.count = 0
        self._wake = threading.Event()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, *_: object) -> None:
        self.count += 1
        self._wake.set()

    def wait(self, seconds: float) -> None:
        """Sleeps, unless a signal comes; raises `Aborted` on the second one."""
        if self.count >= 2:
            raise Aborted
        self._wake.wait(seconds)
        self._wake.clear()


class Aborted(Exception):
    """The operator asked twice to stop."""
