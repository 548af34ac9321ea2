"""The live workers, read once for everybody who asks at about the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from azq import logs
from azq.bus.base import Bus
from azq.errors import WireError
from azq.status.workers import Workforce, joined, team_of, worker_status
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import Heartbeat

log = logs.get(__name__)


class Beats:
    """The newest heartbeats of all live processes, by role and name; safe to share between threads.

    `read` is content with what is younger than `max_age_s`; `refresh` always looks. A heartbeat is decoded when it changed; one
    that does not decode (another azq version) is left out and said once.
    """

    def __init__(self, bus: Bus, *, max_age_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[bytes, Heartbeat | None]] = {}
        self._beats: tuple[Heartbeat, ...] = ()
        self._teams: dict[str, Workforce] = {}
        self._shared: Workforce | None = None
        self._read_s = float("-inf")

    def read(self) -> tuple[Heartbeat, ...]:
        """The live processes as of at most `max_age_s` ago. Raises `BrokerError`."""
        with self._lock:
            return self._beats if self._clock() - self._read_s < self._max_age_s else self._look()

    def refresh(self) -> tuple[Heartbeat, ...]:
        """The live processes now. Raises `BrokerError`."""
        with self._lock:
            return self._look()

    def team(self, run: str, now_ms: int) -> Workforce:
        """The workers of a run as of `read`; put together once for all who ask before the next look. Raises `BrokerError`."""
        self.read()
        with self._lock:
            status = partial(worker_status, now_ms=now_ms)
            if self._shared is None:
                self._shared = team_of([beat for beat in self._beats if not beat.run], status)
            if run not in self._teams:
                self._teams[run] = joined(self._shared, [beat for beat in self._beats if beat.run == run], status)
            return self._teams[run]

    def _look(self) -> tuple[Heartbeat, ...]:
        found = self._bus.values(keys.BEAT_PREFIX)
        self._known = {key: self._decoded(key, frame) for key, frame in found.items()}
        beats = (beat for _, beat in self._known.values() if beat is not None)
        self._beats, self._read_s = tuple(sorted(beats, key=lambda beat: (beat.role, beat.worker))), self._clock()
        self._teams, self._shared = {}, None
        return self._beats

    def _decoded(self, key: str, frame: bytes) -> tuple[bytes, Heartbeat | None]:
        before = self._known.get(key)
        if before is not None and before[0] == frame:
            return before
        try:
            return frame, decode(frame, Heartbeat)
        except WireError as error:
            if before is None or before[1] is not None:
                log.warning("unreadable", place=key, reason=str(error))
            return frame, None
