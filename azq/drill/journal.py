"""When the open games were journaled last, as anybody sees it in the control plane."""

from __future__ import annotations

import random
import time
from typing import Any

import redis

from azq.drill.system import RUN, System
from azq.errors import BrokerError
from azq.wire import keys


class Journal:
    """Watches the records of open games."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._seen: dict[bytes, bytes] = {}
        self._looked_s = time.monotonic()
        self._written_s: float | None = None  # the look before the one that saw it: what is lost is never said too small

    def wait(self, rng: random.Random) -> float:
        """Waits for a journal write and then a random part of the interval; returns the seconds since the last write."""
        self._system.until(lambda: self._look() is not None, "a journal write of open games", 60.0)
        end_s = time.monotonic() + rng.random() * self._system.journal_s()
        self._system.until(lambda: self._look() is not None and time.monotonic() >= end_s, "the moment of the fault", 60.0)
        assert self._written_s is not None
        return time.monotonic() - self._written_s

    def _look(self) -> float | None:
        try:
            with self._system.client() as client:
                now = time.monotonic()
                found: Any = client.hgetall(keys.open_games(RUN))
        except (BrokerError, redis.RedisError):
            return self._written_s
        if any(frame and self._seen.get(uid, frame) != frame for uid, frame in found.items()):
            self._written_s = self._looked_s
        self._seen, self._looked_s = found, now
        return self._written_s
