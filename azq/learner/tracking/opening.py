"""The trackers that a host's settings name, as one: a service that is slow, away or refuses costs training nothing but its curves."""

from __future__ import annotations

import importlib
import importlib.util
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from azq import logs
from azq.config import TrackingConfig
from azq.errors import MissingExtra, reason_of
from azq.learner.tracking.tensorboard import TensorBoardTracker
from azq.learner.tracking.tracker import Fetch, TrackedRun, Tracker
from azq.waiting import Backoff
from azq.wire.messages import WeightEvent

WEIGHTS_EVERY_S = 600.0  # between two versions that a service gets, the last aside
WAITING = 5_000  # calls; beyond that the oldest are forgotten
TRIES = 10  # of one call: some are refused for what they say
BACKOFF = Backoff(1.0, 60.0)
CLOSE_S = 20.0

log = logs.get(__name__)


class AsyncTracker:
    """Makes a tracker and calls it in a thread, in order; a call that fails is retried `TRIES` times.

    Of published weights it passes one version in `weights_every_s` on, and the last.
    """

    def __init__(self, name: str, make: Callable[[], Tracker], *, weights_every_s: float, backoff: Backoff = BACKOFF) -> None:
        self._name = name
        self._make = make
        self._weights_every_s = weights_every_s
        self._backoff = backoff
        self._tracker: Tracker | None = None
        self._calls: deque[Callable[[Tracker], None]] = deque(maxlen=WAITING)
        self._changed = threading.Condition()
        self._closing = False
        self._weights_due_s = 0.0
        self._last_weights: Callable[[Tracker], None] | None = None
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._put(lambda tracker: tracker.scalars(values, step))

    def published(self, event: WeightEvent, fetch: Fetch) -> None:
        def call(tracker: Tracker) -> None:
            tracker.published(event, fetch)

        if time.monotonic() < self._weights_due_s:
            self._last_weights = call
            return
        self._weights_due_s = time.monotonic() + self._weights_every_s
        self._last_weights = None
        self._put(call)

    def flush(self) -> None:
        self._put(lambda tracker: tracker.flush())

    def close(self) -> None:
        """Waits for what is on its way, 20 seconds at most."""
        if self._last_weights:
            self._put(self._last_weights)
        self._put(lambda tracker: tracker.close())
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            log.warning("tracker_left", tracker=self._name, calls=len(self._calls), remedy="see why its service takes nothing")

    def _put(self, call: Callable[[Tracker], None]) -> None:
        with self._changed:
            self._calls.append(call)
            self._changed.notify()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            for failures in range(1, TRIES + 1):
                if self._done(call, failures):
                    break

    def _next(self) -> Callable[[Tracker], None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._calls or self._closing)
            return self._calls.popleft() if self._calls else None

    def _done(self, call: Callable[[Tracker], None], failures: int) -> bool:
        """Whether the call worked; a pause where it did not."""
        try:
            self._tracker = self._tracker or self._make()
            call(self._tracker)
        except Exception as error:  # whatever a foreign library and the service behind it come up with
            pause_s = self._backoff.pause_s(failures)
            log.warning("tracker_failed", tracker=self._name, reason=reason_of(error), next_attempt_s=pause_s)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, pause_s)
            return False
        return True


class Trackers:
    """Several as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = trackers

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for tracker in self._trackers:
            tracker.scalars(values, step)

    def published(self, event: WeightEvent, fetch: Fetch) -> None:
        for tracker in self._trackers:
            tracker.published(event, fetch)

    def flush(self) -> None:
        for tracker in self._trackers:
            tracker.flush()

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()


def open_trackers(config: TrackingConfig, run: TrackedRun) -> Trackers:
    """What `tracking.backends` names, services each behind a thread; raises `MissingExtra` for one whose package is not installed."""
    return Trackers([TensorBoardTracker(run) if name == "tensorboard" else _service(name, config, run) for name in config.backends])


def _service(name: str, config: TrackingConfig, run: TrackedRun) -> AsyncTracker:
    if importlib.util.find_spec(name) is None:
        raise MissingExtra(f"tracking.backends names {name}, which is not installed; `pip install {name}`")
    return AsyncTracker(name, partial(_made, name, run), weights_every_s=WEIGHTS_EVERY_S)


def _made(name: str, run: TrackedRun) -> Tracker:
    """In the tracker's thread: these packages take seconds to import."""
    module = importlib.import_module(f"azq.learner.tracking.{name}")
    tracker: Tracker = getattr(module, f"{name.capitalize()}Tracker")(run)
    return tracker
