"""An inference worker: its heartbeat, needed at the start and missed later without harm; what ends its loop, and what does not."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memory_broker import MemoryBus
from waiting import until

from azq.config import Config
from azq.errors import AccessRefused, BrokerRefused, BrokerUnavailable, DeviceError, EvaluationTimeout
from azq.nets.device import Gauge
from azq.process.cards import LateGpu
from azq.waiting import Backoff
from azq.wire import codec, keys
from azq.wire.messages import Heartbeat
from workers import inference
from workers.inference import ServingBeat, serve


def control_plane() -> MemoryBus:
    """A control plane on which no time passes: heartbeats live for four intervals, which are short here."""
    return MemoryBus(clock=lambda: 0.0)


def make(control, heartbeat_s=1e-9):
    stats = SimpleNamespace(by_run=dict)
    server: Any = SimpleNamespace(rates=dict, versions={"r1": 3}, unserved={}, note="served by: eager, at most 64 leaves", stats=stats)
    config: Any = SimpleNamespace(heartbeat_s=heartbeat_s, heartbeat_life_s=60.0)  # a heartbeat outlives the test
    return ServingBeat(control, server, "inference@test:1", config, Gauge(torch.device("cpu")))


def test_one_that_dies_of_its_device_was_seen(monkeypatch):
    control = control_plane()

    def engine(*_):
        until(lambda: control.values(keys.BEAT_PREFIX), "heartbeat")
        raise DeviceError("lost")

    for name in ("connect_at_start", "admit_data_planes", "agree_on_schema", "prepare_process", "forget_environment"):
        monkeypatch.setattr(inference, name, lambda *_: None)
    monkeypatch.setattr(inference, "place", lambda _: SimpleNamespace(threads=1))
    monkeypatch.setattr(inference, "RedisBus", lambda _: control)
    monkeypatch.setattr(inference, "Engine", engine)
    with pytest.raises(DeviceError):
        inference.main(Config())
    assert control.get(keys.beat(f"inference@{socket.gethostname()}:{os.getpid()}")) is not None


def test_a_late_gpu_ends_one_that_serves_on_the_cpu(tmp_path):
    beat = make(control_plane())
    beat.look = partial(LateGpu("auto", tmp_path).check, "cpu")
    beat.turn()
    (tmp_path / "nvidia0").touch()
    with pytest.raises(DeviceError, match="starts again"):
        beat.turn()


def test_the_first_one_must_arrive():
    control = control_plane()
    control.down = True
    with pytest.raises(BrokerUnavailable):
        make(control).turn()


def test_it_says_what_its_server_notes():
    control = control_plane()
    make(control).turn()
    (frame,) = control.values(keys.BEAT_PREFIX).values()
    beat = codec.decode(frame, Heartbeat)
    assert (beat.weight_versions, beat.note) == ({"r1": 3}, "served by: eager, at most 64 leaves")


def test_a_control_plane_that_is_away_later_stops_nothing():
    control = control_plane()
    beat = make(control)
    beat.turn()
    control.down = True
    beat.turn()
    control.down = False
    control.delete(keys.beat("inference@test:1"))
    beat.turn()
    assert control.get(keys.beat("inference@test:1")) is not None


def test_between_two_nothing_is_written():
    control = control_plane()
    beat = make(control, heartbeat_s=3600.0)
    beat.turn()
    control.delete(keys.beat("inference@test:1"))
    beat.turn()
    assert control.get(keys.beat("inference@test:1")) is None


def test_a_worker_that_was_sent_away_ends_at_its_next_beat_or_step(monkeypatch):
    def refuse(*_, **__):
        raise AccessRefused("no such user; azq join-token")

    control = control_plane()
    beat = make(control)
    beat.turn()
    monkeypatch.setattr(control, "put", refuse)
    with pytest.raises(AccessRefused):
        beat.turn()
    server = SimpleNamespace(step=refuse, drain=list, release=list)
    with pytest.raises(AccessRefused):
        serve(server, lambda: None, threading.Event())


class Server:
    """Does one thing after the other, then stops the loop."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)
        self.stop = threading.Event()
        self.released = self.drained = 0

    def step(self) -> int:
        if not self.steps:
            self.stop.set()
            return 0
        self.steps.pop(0)()
        return 1

    def release(self) -> None:
        self.released += 1

    def drain(self) -> None:
        self.drained += 1


def raising(error: Exception) -> Callable[[], object]:
    def step() -> None:
        raise error

    return step


def test_a_broker_that_goes_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "BACKOFF", Backoff(0.001, 0.001))
    server = Server(raising(BrokerUnavailable("gone")), raising(BrokerRefused("no")), lambda: None)
    inference.serve(server, lambda: None, server.stop)
    assert (server.released, server.drained, server.steps) == (2, 1, [])


@pytest.mark.parametrize("error", [DeviceError("lost"), EvaluationTimeout("loading run r hangs"), ZeroDivisionError()])
def test_anything_else_ends_it(error: Exception) -> None:
    server = Server(raising(error), lambda: None)
    with pytest.raises(type(error)):
        inference.serve(server, lambda: None, server.stop)
    assert server.released == 0
