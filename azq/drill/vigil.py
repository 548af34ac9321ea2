"""Watches a system while it heals: when each role was serving again, and how long no game was learned from."""

from __future__ import annotations

import time
from collections.abc import Callable

from azq.drill.scenarios import PROCESSES
from azq.drill.system import System

LOOK_S = 0.1


class Vigil:
    """Asked to look again and again; all times are seconds since it began."""

    def __init__(self, system: System, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._system = system
        self._clock = clock
        self._looked_s = 0.0
        self._away: dict[str, float] = {}
        self._inserted = -1
        self.begin()

    def begin(self) -> None:
        """Counts from now."""
        self._began_s = self._grown_s = self._clock()
        self._away.clear()
        self.pause_s = 0.0

    def passed_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._began_s

    def look(self) -> None:
        """One look, not more often than makes sense."""
        now = self._clock()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        serving = self._system.serving()
        self._away |= {role: self.passed_s() for role in (*PROCESSES, *self._system.brokers()) if serving.get(role) is None}
        counts = self._system.counts()
        if counts is not None and counts.inserted > self._inserted:
            self._inserted, self._grown_s = counts.inserted, now
        self.pause_s = max(self.pause_s, now - self._grown_s)

    def serving_s(self) -> dict[str, float]:
        """Roles that were not serving at some time, and when they were again."""
        return dict(self._away)
