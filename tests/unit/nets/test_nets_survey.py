"""What torch can use of GPUs, and what their driver tells: with a torch and an NVML that are made up."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from azq import metrics
from azq.nets import survey
from azq.process.cards import Gpu

GIB = 1 << 30
REFUSALS = ("CUDA-capable device(s) is/are busy or unavailable", "no kernel image is available for execution on the device")
CUDA = torch.device("cuda", 1)
TOLD = {metrics.GPU_BUSY: 0.93, metrics.GPU_POWER_W: 412.5, metrics.GPU_TEMPERATURE_C: 61.0}
MEMORY = {metrics.GPU_MEMORY_USED_BYTES: 8.0 * GIB, metrics.GPU_MEMORY_BYTES: 80.0 * GIB}


class NvmlError(Exception):
    """As NVML's: no subclass of anything that azq knows."""


class Nvml(SimpleNamespace):
    """The parts of pynvml that are asked; a handle is the number of a device."""

    NVMLError_DriverNotLoaded = NvmlError

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        assert handle == 1
        return SimpleNamespace(gpu=93, memory=40)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 412_500

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61


class WithoutPower(Nvml):
    """A card that does not tell its power."""

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        raise NvmlError("Not Supported")


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _device: (72 * GIB, 80 * GIB))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def install(monkeypatch: pytest.MonkeyPatch, nvml: Nvml | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr("torch.cuda.pynvml", nvml, raising=False)
    monkeypatch.setattr("torch.cuda._HAS_PYNVML", nvml is not None)
    monkeypatch.setattr("torch.cuda._PYNVML_ERR", None, raising=False)


@pytest.mark.parametrize(
    ("nvml", "told"),
    [(Nvml(), TOLD), (WithoutPower(), {name: TOLD[name] for name in (metrics.GPU_BUSY, metrics.GPU_TEMPERATURE_C)}), (None, {})],
)
def test_what_the_driver_tells_is_told(monkeypatch: pytest.MonkeyPatch, nvml: Nvml | None, told: dict[str, float]) -> None:
    install(monkeypatch, nvml)
    assert survey.device_figures(CUDA) == MEMORY | told
    assert survey.device_figures(torch.device("cpu")) == {}


def test_a_gauge_reads_until_the_device_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter(range(1, 4))

    def figures(_device: torch.device) -> dict[str, float]:
        if turn := next(turns, 0):
            return {"turn": float(turn)}
        raise RuntimeError("CUDA error: unspecified launch failure")

    idle = survey.Gauge(torch.device("cpu"))
    monkeypatch.setattr(survey, "device_figures", figures)
    monkeypatch.setattr(survey, "LOOK_S", 1e-3)
    gauge = survey.Gauge(CUDA)
    for thread in (idle, gauge):
        thread.join(10)
        assert not thread.is_alive()
    assert (idle.figures, gauge.figures) == ({}, {"turn": 3.0})


def test_each_card_is_tried_and_one_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def ones(_count: int, device: torch.device) -> torch.Tensor:
        if device.index:
            raise RuntimeError(f"CUDA error: {REFUSALS[device.index - 1]}\nCompile with")
        return torch.tensor([1.0])

    install(monkeypatch, None)
    facts = SimpleNamespace(name="H200", total_memory=80 * GIB, uuid="u")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _index: facts)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setattr("torch.ones", ones)
    good, busy, old = survey.look()[0]
    assert good == Gpu("cuda:0", "H200", 80 * GIB, 72 * GIB, "u", figures=MEMORY)
    assert (busy.trouble.count("\n"), busy.uuid) == (0, "u")
    assert "nvidia-smi -c DEFAULT" in busy.trouble
    assert "another build" in old.trouble


def test_why_there_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)  # NVML counts cards for which a driver is too old
    monkeypatch.setattr(survey, "no_cuda", lambda: "no driver; install it")
    assert survey.look() == ((), "no driver; install it")
