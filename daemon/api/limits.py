"""How much may be asked: runs and jobs that wait or run, open event streams, requests per second."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from azq.errors import TooManyRequests

T = TypeVar("T")

MAX_RUNS = 100  # running at once, for a request that creates or resumes one
MAX_QUEUED_JOBS = 10_000  # queued and leased, over all runs, for a request that enqueues one
EVENT_STREAMS = 64  # open at once, three quarters of them with one token
RATE_PER_S = 1000.0  # requests of one token, or of one address where there is none
BURST_S = 2.0  # whose requests a caller may make at once


@contextmanager
def room(turn: threading.Lock, count: Callable[[], int], most: int, reason: str) -> Iterator[None]:
    """One change at a time is let in after a look at the ledger. Raises `TooManyRequests` where there are `most` already.

    A lock of this process is enough, and no script has to read the keys of all runs: only the one daemon that holds the control plane's
    lock answers requests. A process that writes to the control plane directly, as `azq up` does, holds its password and is not bounded.
    """
    with turn:
        if (there := count()) >= most:
            raise TooManyRequests(f"{there} {reason}")
        yield


class Streams:
    """Counts open streams, of all and of each who asks; safe to share between threads."""

    def __init__(self, most: int = EVENT_STREAMS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._of: Counter[str] = Counter()
        self.closing = False

    @property
    def open(self) -> int:
        """Streams that are open now."""
        return self._of.total()

    def enter(self, who: str) -> None:
        """Takes a place for the holder of a token. Raises `TooManyRequests` where there is none left, for all or for this one."""
        with self._lock:
            if self.open >= self._most:
                raise TooManyRequests(f"{self.open} event streams are open, and there may be {self._most}; end one")
            if self._of[who] >= max(1, self._most * 3 // 4):  # no reader takes all
                raise TooManyRequests(f"token {who!r} has {self._of[who]} event streams open, three quarters of {self._most}; end one")
            self._of[who] += 1

    def leave(self, who: str) -> None:
        """Gives a place back."""
        with self._lock:
            self._of[who] -= 1

    def close(self) -> None:
        """Asks all streams to end."""
        self.closing = True


class Turns:
    """Long work in a few threads: some of it waits, and what is beyond that is refused."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._room = threading.Semaphore(at_once + waiting)
        self._pool = ThreadPoolExecutor(at_once, "turns")
        self.closing = False

    async def take(self, work: Callable[[], T], full: str) -> T:
        """What the work comes to. Raises `TooManyRequests`, saying `full`, where too much is waiting, and what the work raises."""
        if not self._room.acquire(blocking=False):
            raise TooManyRequests(full)
        future = self._pool.submit(work)
        future.add_done_callback(lambda _: self._room.release())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Asks all work to end; what has not begun never will."""
        self.closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)


MOST_CALLERS = 4096


class Limiter:
    """So many requests a second of each caller, and `burst` at once after a rest; for one event loop.

    A caller is known by when its allowance will be whole again (the generic cell rate algorithm); beyond `most_callers` the one whose last
    request is the oldest is forgotten.
    """

    def __init__(
        self, per_s: float, burst: float, *, clock_s: Callable[[], float] = time.monotonic, most_callers: int = MOST_CALLERS
    ) -> None:
        self._every_s = 1.0 / per_s
        self._tolerance_s = (burst - 1) / per_s
        self._clock_s = clock_s
        self._most_callers = most_callers
        self._whole_s: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._whole_s)

    def wait_s(self, caller: str) -> int:
        """0 when the caller may send a request now, else whole seconds after which it may."""
        now_s = self._clock_s()
        whole_s = max(now_s, self._whole_s.pop(caller, now_s))
        wait_s = round(whole_s - now_s - self._tolerance_s, 9)  # what sums of floats are off by is no second to wait
        self._whole_s[caller] = whole_s if wait_s > 0 else whole_s + self._every_s
        while len(self._whole_s) > self._most_callers:
            self._whole_s.popitem(last=False)
        return max(0, math.ceil(wait_s))
