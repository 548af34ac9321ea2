"""The wall clock as every message tells it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TIME_NS: ContextVar[Callable[[], int]] = ContextVar("wall clock", default=time.time_ns)


def now_ms() -> int:
    """Milliseconds since 1970, UTC; it may jump where somebody sets the clock, so durations are never measured with it."""
    return now_ns() // 1_000_000


def now_ns() -> int:
    """The same in nanoseconds."""
    return _TIME_NS.get()()


@contextmanager
def wall_clock(time_ns: Callable[[], int]) -> Iterator[None]:
    """Another wall clock for the length of the block, in this context alone: that of a simulated host."""
    token = _TIME_NS.set(time_ns)
    try:
        yield
    finally:
        _TIME_NS.reset(token)
