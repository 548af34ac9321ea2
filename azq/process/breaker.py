"""Patience with a broker that went away, or a disk that takes nothing: each call is tried at most once per pause, and pauses grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from azq import logs
from azq.errors import AzqError, BrokerUnavailable
from azq.waiting import Backoff

T = TypeVar("T")

BACKOFF = Backoff(0.2, 5.0)

log = logs.get(__name__)


@dataclass(eq=False)
class CircuitBreaker:
    """Runs calls that may fail by `error`; between a failure and the end of its pause it runs none. `lines` name both in the log."""

    error: type[AzqError] = BrokerUnavailable
    lines: tuple[str, str] = ("broker_away", "broker_back")
    _: KW_ONLY
    backoff: Backoff = BACKOFF
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._failures = 0  # in a row
        self._until = 0.0

    @property
    def active(self) -> bool:
        """True from a failure to the next call that works."""
        return self._failures > 0

    def attempt(self, call: Callable[[], T]) -> T | None:
        """The call's result; None when it failed or did a moment ago. Other errors pass."""
        if self.clock() < self._until:
            return None
        try:
            result = call()
        except self.error as error:
            self._failures += 1
            pause_s = self.backoff.pause_s(self._failures)
            self._until = self.clock() + pause_s
            log.warning(self.lines[0], reason=str(error), next_attempt_s=pause_s)
            return None
        if self.active:
            log.info(self.lines[1])
        self._failures = 0
        return result
