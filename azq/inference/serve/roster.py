"""Which runs an inference worker serves and how often it looks at each; which it cannot serve, why, and when each is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from azq import logs
from azq.clock import now_ms
from azq.errors import BrokerError, DeviceError, reason_of
from azq.ledger import Ledger
from azq.ledger.types import RunState, RunView
from azq.waiting import Backoff

POLL_S = 0.25  # between looks at the names and at the runs that are awake
REST_POLL_S = 5.0  # between looks at the others
REST_AFTER_MS = 600_000  # a run paused or finished for so long sleeps until it has jobs again, or somebody wants moves of it
SERVED_STATES = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.FINISHED})  # finished: its last evaluation


def rests(view: RunView, at_ms: int) -> bool:
    """Whether a run without jobs is left alone."""
    return view.state not in SERVED_STATES or (view.state is not RunState.RUNNING and at_ms - view.changed_ms > REST_AFTER_MS)


@dataclass(eq=False)
class Roster:
    """The runs to serve, read with as few requests as that takes."""

    ledger: Ledger
    wanted: Callable[[], Collection[str]] = frozenset  # runs to be served whatever their state
    clock_s: Callable[[], float] = time.monotonic
    clock_ms: Callable[[], int] = now_ms

    def __post_init__(self) -> None:
        self._asleep: set[str] = set()
        self._stirring: set[str] = set()  # old runs that have jobs
        self._poll_at_s = self._rest_poll_at_s = float("-inf")

    def poll(self) -> dict[str, RunView] | None:
        """The runs to serve by name; None where it is not time for a look yet. Raises BrokerError."""
        if self.clock_s() < self._poll_at_s:
            return None
        names, wanted = self.ledger.names(), self.wanted()
        if self.clock_s() >= self._rest_poll_at_s:
            old = [name for name in names if name in self._asleep or name in self._stirring]
            self._stirring = set(self.ledger.stirring(old))
            self._rest_poll_at_s = self.clock_s() + REST_POLL_S
        candidates = [name for name in names if name not in self._asleep or name in self._stirring or name in wanted]
        looked_ms = self.clock_ms()
        awake = {
            view.record.run: view for view in self.ledger.runs(candidates) if view.record.run in wanted or self._awake(view, looked_ms)
        }
        self._asleep = set(names).difference(awake)
        self._poll_at_s = self.clock_s() + POLL_S
        return awake

    def _awake(self, view: RunView, at_ms: int) -> bool:
        return view.state in SERVED_STATES and (view.record.run in self._stirring or not rests(view, at_ms))


AGAIN = Backoff(5.0, 300.0)  # until a thing that failed is tried again
MAX_REASON = 200
NOT_THE_RUNS = (BrokerError, DeviceError)  # errors for which no run is to blame
Life = tuple[str, int]  # a run's name and when it was created


@dataclass(frozen=True, slots=True)
class FailedRun:
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
        failure = self._failures.get(life)
        return failure is None or self._clock_s() >= failure.again_s

    def failed(self, life: Life, error: BaseException) -> None:
        """Notes a failure; each reason is logged once."""
        before, reason = self._failures.get(life), reason_of(error, MAX_REASON)
        count = before.count + 1 if before else 1
        if before is None or before.reason != reason:
            logs.get(__name__).error("run_not_served", run=life[0], reason=reason, again_s=AGAIN.pause_s(count))
        self._failures[life] = FailedRun(reason, count, self._clock_s() + AGAIN.pause_s(count))
        self._update_reasons()

    def mended(self, life: Life) -> None:
        if self._failures.pop(life, None) is not None:
            logs.get(__name__).info("run_served", run=life[0])
            self._update_reasons()

    def keep(self, lives: Collection[Life]) -> None:
        if any(life not in lives for life in self._failures):
            self._failures = {life: failure for life, failure in self._failures.items() if life in lives}
            self._update_reasons()

    def _update_reasons(self) -> None:
        self.reasons = {run: failure.reason for (run, _), failure in self._failures.items()}
