"""Runs of which somebody wants moves: the daemon notes them, and inference workers serve them however long ago they ended."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from azq.bus.base import Bus
from azq.errors import AccessRefused
from azq.wire import keys
from azq.wire.codec import decode, encode, skip_unreadable
from azq.wire.messages import WantedRuns

LIFE_S = 600.0  # of a wish
MOST = 16  # runs at once, those wanted last: each takes memory of every inference worker


class MoveWishes:
    """The wishes of the one daemon; safe to share between threads."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._turn = threading.Lock()
        self._until_s: OrderedDict[str, float] = OrderedDict()  # by run, the oldest wish first

    def add(self, control: Bus, run: str) -> None:
        """Notes a run, which is then wanted for `LIFE_S` more. Raises `BrokerError`."""
        with self._turn:
            now_s = self._clock_s()
            self._until_s[run] = now_s + LIFE_S
            self._until_s.move_to_end(run)
            while len(self._until_s) > MOST or next(iter(self._until_s.values())) <= now_s:
                self._until_s.popitem(last=False)
            control.put(keys.WANTED, encode(WantedRuns(tuple(self._until_s))), life_s=LIFE_S)


def wanted_runs(control: Bus) -> frozenset[str]:
    """The runs that are wanted now; none where the broker's users were made before there were such wishes. Raises `BrokerError`."""
    try:
        (frame,) = control.get_each([keys.WANTED])
    except AccessRefused:
        return frozenset()
    with skip_unreadable(keys.WANTED):
        return frozenset(decode(frame, WantedRuns).runs) if frame else frozenset()
    return frozenset()
