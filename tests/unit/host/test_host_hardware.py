"""One inference worker a CUDA device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from azq.bus.memory import MemoryBus
from azq.config import Config, InferenceConfig
from azq.console import session as sessions
from azq.host.hardware import inference_children, visible
from azq.host.rundir import RunDir
from azq.status.audit import line_of
from azq.wire import keys


@pytest.mark.parametrize(
    ("devices", "environment", "version", "left"),
    [
        (4, {}, "2.13.0+cu130", 4),
        (4, {}, "2.13.0", 4),
        (4, {}, "2.13.0+cpu", 0),
        (4, {"CUDA_VISIBLE_DEVICES": ""}, "2.13.0", 0),
        (4, {"CUDA_VISIBLE_DEVICES": "-1"}, "2.13.0", 0),
        (4, {"CUDA_VISIBLE_DEVICES": "2, 3"}, "2.13.0", 2),
        (4, {"CUDA_VISIBLE_DEVICES": "2,9,3"}, "2.13.0", 1),
        (4, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937,GPU-1a2b3c4d"}, "2.13.0", 2),
        (0, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, "2.13.0", 0),
    ],
)
def test_devices_that_may_be_used(devices, environment, version, left):
    assert visible(devices, environment, version) == left


@pytest.mark.parametrize("devices", [0, 1])
def test_one_worker_chooses_by_itself(devices):
    assert inference_children(InferenceConfig(), devices) == {"inference": ["inference"]}


def test_several_devices_get_a_worker_each_unless_one_was_named():
    assert inference_children(InferenceConfig(), 3) == {
        "inference": ["inference", "--device", "cuda:0"],
        "inference.1": ["inference", "--device", "cuda:1"],
        "inference.2": ["inference", "--device", "cuda:2"],
    }
    assert inference_children(InferenceConfig(device="cuda:1"), 3) == {"inference": ["inference"]}
    assert inference_children(InferenceConfig(device="cpu"), 3) == {"inference": ["inference"]}


def test_azq_up_starts_and_stops_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "usable_cuda_devices", lambda: 2)
    start: Any = SimpleNamespace(run=RunDir(tmp_path, "mine"))
    supervisor: Any = SimpleNamespace(children={}, stopped=[], stop=lambda names, _wait: supervisor.stopped.append(names))
    bus = MemoryBus()
    watch: Any = SimpleNamespace(bus=bus)
    interrupts: Any = SimpleNamespace(pause=None)
    brokers: Any = SimpleNamespace(fronts=())
    session = sessions.Session(start, Config(), None, supervisor, watch, interrupts, brokers)
    supervisor.children = {spec.name: spec for spec in session.specs()}
    assert list(supervisor.children) == ["daemon", "inference", "inference.1", "selfplay", "eval", "learner"]
    assert supervisor.children["inference.1"].command[-3:] == ["inference", "--device", "cuda:1"]
    ledger: Any = SimpleNamespace(run=lambda _name: SimpleNamespace(state=None), set_run_state=lambda *_: None)
    screen: Any = SimpleNamespace(note=lambda _text: None)
    session.ledger = ledger
    session.drain(screen)
    assert supervisor.stopped == [("selfplay",), ("learner",), ("eval", "inference", "inference.1", "daemon")]
    (noted,) = map(line_of, bus.after(keys.AUDIT, "0"))
    assert (noted.what, noted.about) == ("azq up was stopped", "mine")
