"""Sends a run's training curves and settings to the trackers that a host's settings name.

A service that is slow, down or refuses costs training nothing but its curves. Tags: loss/policy loss/value loss/<further head> train/lr
train/samples_per_s replay/samples_per_insert replay/window replay/games selfplay/policy_lag selfplay/plies weights/version
phase/wall_<part of the learner's time>, and those of `azq.learner.curves`.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from azq import logs
from azq.config import TrackingConfig
from azq.errors import MissingExtra, reason_of
from azq.waiting import Backoff

WAITING = 5_000  # calls; beyond that the oldest are forgotten
TRIES = 10  # of one call: some are refused for what they say
BACKOFF = Backoff(1.0, 60.0)
CLOSE_S = 20.0

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as its trackers know it; the same after each restart."""

    name: str
    created_ms: int
    directory: Path
    settings: Mapping[str, Any]  # by section, plain values

    @property
    def id(self) -> str:
        """Tells the run from an earlier one of the same name."""
        return f"{self.name}-{self.created_ms}"

    @property
    def game(self) -> str:
        """Name of its game."""
        return str(self.settings["run"]["game"])


class Tracker(Protocol):
    """Methods raise any error of their library."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Records figures by tag at a training step, readable by others at once."""

    def close(self) -> None:
        """Flushes, and says that the learner ends."""


class AsyncTracker:
    """Makes a tracker and calls it in a thread, in order; a call that fails is retried `TRIES` times."""

    def __init__(self, name: str, make: Callable[[], Tracker], backoff: Backoff = BACKOFF) -> None:
        self._name = name
        self._make = make
        self._backoff = backoff
        self._tracker: Tracker | None = None
        self._calls: deque[Callable[[Tracker], None]] = deque(maxlen=WAITING)
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._put(lambda tracker: tracker.scalars(values, step))

    def close(self) -> None:
        """Waits for pending calls, 20 seconds at most."""
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

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()


def open_trackers(config: TrackingConfig, run: TrackedRun) -> Trackers:
    """The trackers of `tracking.backends`, services each behind a thread; raises `MissingExtra` for one whose package is not installed."""
    trackers: list[Tracker] = []
    for name in config.backends:
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(f"tracking.backends names {name}, which is not installed; `pip install {name}`")
        make = partial(_import_tracker, name, run)
        trackers.append(make() if name == "tensorboard" else AsyncTracker(name, make))
    return Trackers(trackers)


def _import_tracker(name: str, run: TrackedRun) -> Tracker:
    """Imports a backend, for some seconds, where it is used."""
    module = importlib.import_module(f"azq.learner.tracking.{name}")
    tracker: Tracker = getattr(module, f"{name.capitalize()}Tracker")(run)
    return tracker
