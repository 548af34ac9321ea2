"""Which runs an inference worker serves, and how often it looks at each: the busy ones many times a second, the others now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from azq.clock import now_ms
from azq.ledger.types import RunState, RunView

LOOK_S = 0.25  # between looks at the names and at the runs that are awake
REST_LOOK_S = 5.0  # between looks at the others
REST_AFTER_MS = 600_000  # a run paused or finished for so long sleeps until it has jobs again
SERVED_STATES = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.FINISHED})  # finished: its last evaluation


class Runs(Protocol):
    """The part of the ledger that tells of runs."""

    def names(self) -> list[str]: ...
    def runs(self, names: Sequence[str] | None = None) -> list[RunView]: ...
    def stirring(self, names: Sequence[str]) -> list[str]: ...


def rests(view: RunView, at_ms: int) -> bool:
    """Whether a run without jobs is left alone."""
    return view.state not in SERVED_STATES or (view.state is not RunState.RUNNING and at_ms - view.changed_ms > REST_AFTER_MS)


class Roster:
    """The runs to serve, read with as few requests as that takes."""

    def __init__(self, runs: Runs, clock_s: Callable[[], float] = time.monotonic, clock_ms: Callable[[], int] = now_ms) -> None:
        self._runs = runs
        self._clock_s = clock_s
        self._clock_ms = clock_ms
        self._asleep: set[str] = set()
        self._stirring: set[str] = set()  # old runs that have jobs
        self._look_at_s = self._rest_look_at_s = float("-inf")

    def look(self) -> dict[str, RunView] | None:
        """The runs to serve by name; None where it is not time for a look yet. Raises BrokerError."""
        if self._clock_s() < self._look_at_s:
            return None
        names = self._runs.names()
        if self._clock_s() >= self._rest_look_at_s:
            old = [name for name in names if name in self._asleep or name in self._stirring]
            self._stirring = set(self._runs.stirring(old))
            self._rest_look_at_s = self._clock_s() + REST_LOOK_S
        asked = [name for name in names if name not in self._asleep or name in self._stirring]
        looked_ms = self._clock_ms()
        awake = {view.record.run: view for view in self._runs.runs(asked) if self._awake(view, looked_ms)}
        self._asleep = set(names).difference(awake)
        self._look_at_s = self._clock_s() + LOOK_S
        return awake

    def _awake(self, view: RunView, at_ms: int) -> bool:
        return view.state in SERVED_STATES and (view.record.run in self._stirring or not rests(view, at_ms))
