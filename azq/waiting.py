"""Waiting: pauses that grow from failure to failure, looks until something is there, and what a thread does meanwhile."""

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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: `first_s` after a failure, twice as long after each further one in a row, never over `longest_s`. Pure."""

    first_s: float
    longest_s: float

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row; 0.0 after none."""
        return min(math.ldexp(self.first_s, min(failures - 1, MOST_DOUBLINGS)), self.longest_s) if failures else 0.0


def until(look: Callable[[], T | None], failure: str | Callable[[], str], within_s: float, *, every_s: float = 0.05) -> T:
    """The first answer that is neither None nor False; raises `EvaluationTimeout` with the failure's words when none came in time."""
    deadline_s, pause = time.monotonic() + within_s, threading.Event()
    while (answer := look()) is None or answer is False:
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
