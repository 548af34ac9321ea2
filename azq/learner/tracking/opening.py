"""The trackers that a host's settings name, as one."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import partial

from azq.config import TrackingConfig
from azq.errors import MissingExtra
from azq.learner.tracking.beside import TrackerBeside
from azq.learner.tracking.tensorboard import TensorBoardTracker
from azq.learner.tracking.tracker import Fetch, TrackedRun, Tracker
from azq.wire.messages import WeightEvent

WEIGHTS_EVERY_S = 600.0  # between two versions that a service gets, the last aside


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
    return Trackers([TensorBoardTracker(run) if name == "tensorboard" else _beside(name, config, run) for name in config.backends])


def _beside(name: str, config: TrackingConfig, run: TrackedRun) -> TrackerBeside:
    if importlib.util.find_spec(name) is None:
        raise MissingExtra(f"tracking.backends names {name}, which is not installed; `pip install {name}`")
    return TrackerBeside(name, partial(_made, name, run), weights_every_s=WEIGHTS_EVERY_S)


def _made(name: str, run: TrackedRun) -> Tracker:
    """In the tracker's thread: these packages take seconds to import."""
    module = importlib.import_module(f"azq.learner.tracking.{name}")
    tracker: Tracker = getattr(module, f"{name.capitalize()}Tracker")(run)
    return tracker
