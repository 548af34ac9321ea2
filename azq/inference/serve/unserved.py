"""Runs that this host cannot serve: why, and when each is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from azq import logs
from azq.errors import BrokerError, DeviceError, reason_of
from azq.waiting import Backoff

AGAIN = Backoff(5.0, 300.0)  # until a thing that failed is tried again
MAX_REASON = 200
NOT_THE_RUNS = (BrokerError, DeviceError)  # errors for which no run is to blame

Life = tuple[str, int]  # a run's name and when it was created


@dataclass(frozen=True, slots=True)
class FailedRun:
    """How often a run failed, and when it is tried again."""

    reason: str
    count: int
    again_s: float


class Unserved:
    """What went wrong with which runs. One thread notes; `reasons` is replaced and never changed, so another may read it."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.reasons: dict[str, str] = {}  # by run
        self._clock_s = clock_s
        self._failures: dict[Life, FailedRun] = {}

    def due(self, life: Life) -> bool:
        """Whether it is time to try this run."""
        failure = self._failures.get(life)
        return failure is None or self._clock_s() >= failure.again_s

    def failed(self, life: Life, error: BaseException) -> None:
        """Notes a failure; each reason is logged once."""
        before, reason = self._failures.get(life), reason_of(error, MAX_REASON)
        count = before.count + 1 if before else 1
        if before is None or before.reason != reason:
            logs.get(__name__).error("run_not_served", run=life[0], reason=reason, again_s=AGAIN.pause_s(count))
        self._failures[life] = FailedRun(reason, count, self._clock_s() + AGAIN.pause_s(count))
        self._tell()

    def mended(self, life: Life) -> None:
        """This run is served."""
        if self._failures.pop(life, None) is not None:
            logs.get(__name__).info("run_served", run=life[0])
            self._tell()

    def keep(self, lives: Collection[Life]) -> None:
        """Forgets all other runs."""
        if any(life not in lives for life in self._failures):
            self._failures = {life: failure for life, failure in self._failures.items() if life in lives}
            self._tell()

    def _tell(self) -> None:
        self.reasons = {run: failure.reason for (run, _), failure in self._failures.items()}
