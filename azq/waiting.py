"""Waiting: pauses that grow from failure to failure, looks until something is there, what a thread does meanwhile and what it waits for."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from azq.errors import EvaluationTimeout

MOST_DOUBLINGS = 64  # longer pauses than any bound; a float ends at 1024

NOTICED_AFTER_S = 1.0  # a wait that is shorter is work
LONGEST_WAIT_S = 60.0  # of one command or connection, whose own time limits are shorter but where a name is looked up

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: `first_s` after a failure, twice as long after each further one in a row, never over `longest_s`. Pure."""

    first_s: float
    longest_s: float

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row; 0.0 after none."""
        return min(math.ldexp(self.first_s, min(failures - 1, MOST_DOUBLINGS)), self.longest_s) if failures else 0.0


class AwakeClock:
    """Seconds in which the reader of this clock was awake: time between two readings counts for `longest_s` at most.

    For watchdogs, which read it at each look: a pause of the whole machine, a frozen group of processes or too small a share of a core is
    then no silence of the watched.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, longest_s: float = 2.0) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._read_s = clock()
        self._awake_s = 0.0

    def __call__(self) -> float:
        now_s = self._clock()
        self._awake_s += min(now_s - self._read_s, self._longest_s)
        self._read_s = now_s
        return self._awake_s


class Waits:
    """Which threads wait for a broker's answer, and since when: watchdogs excuse them meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s: dict[int, float] = {}

    @contextmanager
    def here(self) -> Iterator[None]:
        """This thread waits for the length of the block."""
        thread = threading.get_ident()
        before = self._since_s.get(thread)
        self._since_s[thread] = self._clock()
        try:
            yield
        finally:
            if before is None:
                del self._since_s[thread]
            else:
                self._since_s[thread] = before

    def excuse(self, thread: int) -> bool:
        """Whether a thread has waited for longer than work takes, and for no longer than one wait may last."""
        since_s = self._since_s.get(thread)
        return since_s is not None and NOTICED_AFTER_S <= self._clock() - since_s < LONGEST_WAIT_S


WAITS = Waits()  # of this process


def until(check: Callable[[], T | None], failure: str | Callable[[], str], within_s: float, *, every_s: float = 0.05) -> T:
    """The first answer that is neither None nor False; raises `EvaluationTimeout` with the failure's words when none came in time."""
    deadline_s, pause = time.monotonic() + within_s, threading.Event()
    while (answer := check()) is None or answer is False:
        if time.monotonic() > deadline_s:
            raise EvaluationTimeout(failure if isinstance(failure, str) else failure())
        pause.wait(every_s)
    return answer


@contextmanager
def meanwhile(name: str, work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Has a thread work for the length of a block, at whose end the event is set and the thread awaited."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
