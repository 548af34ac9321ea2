"""Trackers: TensorBoard's files, a service's thread that retries and gives up, and what settings may name."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from azq.config import TrackingConfig
from azq.errors import MissingExtra
from azq.learner.tracking.tensorboard import TensorboardTracker
from azq.learner.tracking.tracker import TRIES, AsyncTracker, TrackedRun, open_trackers
from azq.waiting import Backoff

NO_PAUSE = Backoff(0.0, 0.0)


def tracked(folder: Path) -> TrackedRun:
    return TrackedRun("r", 17, folder, {"run": {"game": "tic_tac_toe"}, "learner": {"batch_size": 8}})


class Service:
    """A tracker that remembers, and fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.said: list[object] = []
        self.failures = failures
        self.tries = 0

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._take((step, dict(values)))

    def close(self) -> None:
        self.said.append("closed")

    def _take(self, what: object) -> None:
        self.tries += 1
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no route to the service")
        self.said.append(what)


def test_tensorboard_reads_back_what_was_tracked(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    tracker = TensorboardTracker(tracked(tmp_path))
    tracker.scalars({"loss/policy": 1.5, "train/lr": 0.25}, 7)
    tracker.close()
    events = [event for file in (tmp_path / "tensorboard").iterdir() for event in EventFileLoader(str(file)).Load()]
    seen = {value.tag: event.step for event in events for value in event.summary.value}
    assert seen == {"loss/policy": 7, "train/lr": 7, "run/text_summary": 0}


def test_a_service_gets_all_calls_in_order_whatever_fails_in_between(caplog):
    service = Service(failures=3)
    tracker = AsyncTracker("wandb", lambda: service, backoff=NO_PAUSE)
    tracker.scalars({"a": 1.0}, 1)
    tracker.scalars({"a": 2.0}, 2)
    tracker.close()
    assert service.said == [(1, {"a": 1.0}), (2, {"a": 2.0}), "closed"]


def test_what_a_service_never_takes_is_given_up_and_the_next_call_is_made():
    service = Service(failures=TRIES)
    tracker = AsyncTracker("wandb", lambda: service, backoff=NO_PAUSE)
    tracker.scalars({"refused": 1.0}, 1)
    tracker.scalars({"a": 2.0}, 2)
    tracker.close()
    assert service.said == [(2, {"a": 2.0}), "closed"]


def test_a_service_that_cannot_be_reached_is_made_later():
    service, attempts = Service(), iter([OSError("no route"), None])

    def make() -> Service:
        if (error := next(attempts)) is not None:
            raise error
        return service

    tracker = AsyncTracker("wandb", make, backoff=NO_PAUSE)
    tracker.scalars({"a": 1.0}, 1)
    tracker.close()
    assert service.said == [(1, {"a": 1.0}), "closed"]


def test_a_slow_service_keeps_nobody_waiting():
    release, service = threading.Event(), Service()

    def make() -> Service:
        release.wait(PATIENCE_S)
        return service

    tracker = AsyncTracker("wandb", make)
    for step in range(100):
        tracker.scalars({"a": 1.0}, step)  # returns, though nobody answers
    release.set()
    tracker.close()
    assert len(service.said) == 101


def test_a_service_without_its_package_is_named_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tracking\.backends names wandb.*pip install wandb"):
        open_trackers(TrackingConfig(backends=("wandb",)), tracked(tmp_path))
