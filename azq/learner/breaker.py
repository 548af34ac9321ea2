"""Patience with a broker that went away, or a disk that takes nothing: each call is tried at most once per pause, and pauses grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from azq import logs
from azq.errors import AzqError, BrokerUnavailable

T = TypeVar("T")

log = logs.get(__name__)


class CircuitBreaker:
    """Runs calls that may fail by `error`; between a failure and the end of its pause it runs none. `lines` name both in the log."""

    def __init__(
        self,
        error: type[AzqError] = BrokerUnavailable,
        lines: tuple[str, str] = ("broker_away", "broker_back"),
        *,
        first_s: float = 0.2,
        longest_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._error = error
        self._lost, self._back = lines
        self._first_s = first_s
        self._longest_s = longest_s
        self._clock = clock
        self._pause_s = 0.0
        self._until = 0.0

    @property
    def active(self) -> bool:
        """True from a failure to the next call that works."""
        return self._pause_s > 0.0

    def attempt(self, call: Callable[[], T]) -> T | None:
        """The call's result; None when it failed or did a moment ago. Other errors pass."""
        if self._clock() < self._until:
            return None
        try:
            result = call()
        except self._error as error:
            self._pause_s = min(self._longest_s, max(self._first_s, self._pause_s * 2))
            self._until = self._clock() + self._pause_s
            log.warning(self._lost, reason=str(error), next_attempt_s=self._pause_s)
            return None
        if self.active:
            log.info(self._back)
        self._pause_s = 0.0
        return result
