"""An inference worker's heartbeat: needed at the start, missed later without harm."""

from __future__ import annotations

import os
import socket
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memory_broker import MemoryBus
from waiting import until

from azq.config import Config, WorkerConfig
from azq.errors import AccessRefused, BrokerUnavailable, DeviceError
from azq.nets.survey import Gauge
from azq.process.cards import LateGpu
from azq.wire import codec, keys
from azq.wire.messages import Heartbeat
from workers import inference
from workers.inference import ServingBeat, serve


def make(control, heartbeat_s=1e-9):
    stats = SimpleNamespace(by_run=dict)
    server: Any = SimpleNamespace(rates=dict, versions={"r1": 3}, unserved={}, note="served by: eager, at most 64 leaves", stats=stats)
    return ServingBeat(control, server, "inference@test:1", WorkerConfig(heartbeat_s=heartbeat_s), Gauge(torch.device("cpu")))


def test_one_that_dies_of_its_device_was_seen(monkeypatch):
    control = MemoryBus()

    def engine(*_):
        until(lambda: control.values(keys.BEAT_PREFIX), "heartbeat")
        raise DeviceError("lost")

    for name in ("connect_at_start", "admit_data_planes", "agree_on_schema", "prepare_process", "forget_environment"):
        monkeypatch.setattr(inference, name, lambda *_: None)
    monkeypatch.setattr(inference, "place", lambda _: SimpleNamespace(threads=1))
    monkeypatch.setattr(inference, "RedisBus", lambda _: control)
    with pytest.raises(DeviceError):
        inference.main(Config(), engine)
    assert control.get(keys.beat(f"inference@{socket.gethostname()}:{os.getpid()}")) is not None


def test_a_late_gpu_ends_one_that_serves_on_the_cpu(tmp_path):
    beat = make(MemoryBus())
    beat.look = partial(LateGpu("auto", tmp_path).check, "cpu")
    beat.turn()
    (tmp_path / "nvidia0").touch()
    with pytest.raises(DeviceError, match="starts again"):
        beat.turn()


def test_the_first_one_must_arrive():
    control = MemoryBus()
    control.down = True
    with pytest.raises(BrokerUnavailable):
        make(control).turn()


def test_it_says_what_its_server_notes():
    control = MemoryBus()
    make(control).turn()
    (frame,) = control.values(keys.BEAT_PREFIX).values()
    beat = codec.decode(frame, Heartbeat)
    assert (beat.weight_versions, beat.note) == ({"r1": 3}, "served by: eager, at most 64 leaves")


def test_a_control_plane_that_is_away_later_stops_nothing():
    control = MemoryBus()
    beat = make(control)
    beat.turn()
    control.down = True
    beat.turn()
    control.down = False
    control.delete(keys.beat("inference@test:1"))
    beat.turn()
    assert control.get(keys.beat("inference@test:1")) is not None


def test_between_two_nothing_is_written():
    control = MemoryBus()
    beat = make(control, heartbeat_s=3600.0)
    beat.turn()
    control.delete(keys.beat("inference@test:1"))
    beat.turn()
    assert control.get(keys.beat("inference@test:1")) is None


def test_a_worker_that_was_sent_away_ends_at_its_next_beat_or_step(monkeypatch):
    def refuse(*_, **__):
        raise AccessRefused("no such user; azq join-token")

    control = MemoryBus()
    beat = make(control)
    beat.turn()
    monkeypatch.setattr(control, "put", refuse)
    with pytest.raises(AccessRefused):
        beat.turn()
    server = SimpleNamespace(step=refuse, drain=list, release=list)
    with pytest.raises(AccessRefused):
        serve(server, lambda: None, threading.Event())
