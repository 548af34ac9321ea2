"""The device that a process computes on, the memory that it keeps, and what torch and drivers tell of GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from waiting import PATIENCE_S

from azq import metrics
from azq.errors import AzqError, ConfigError, DeviceError
from azq.nets import device
from azq.nets.device import cpu_flags, has_bfloat16, pick_device, prepare_process
from azq.process.cards import Gpu

# Each tensor is larger than all before it, which by default malloc maps anew.
PROGRAM = """
import resource
import torch
from azq.nets.device import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for step in range(20):
        torch.ones((1 << 20) + 4096 * step)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults()
kept = keep_freed_memory()
if kept:
    torch.ones(7 << 20)  # far more than the tensors below, so that they fit even where small blocks stay among them
print(int(kept), faults(), usual)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_tensors_are_used_again_without_the_kernel():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    kept, quiet, usual = map(int, done.stdout.split())
    if not kept:
        pytest.skip("malloc is not glibc's")
    assert quiet < usual / 4


@pytest.mark.parametrize(("given", "kept"), [("", "cache/azq/inductor"), ("elsewhere", "elsewhere")])
def test_compiled_kernels_outlive_the_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, kept: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", given)
    if not given:
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    prepare_process(torch.get_num_threads())
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == kept


def test_cpu_flags_are_read() -> None:
    flags = cpu_flags("processor\t: 0\nflags\t\t: fpu avx512_bf16 sse\nbugs\t: none\n")
    assert flags == {"fpu", "avx512_bf16", "sse"}
    assert has_bfloat16(flags)
    assert has_bfloat16(frozenset({"amx_bf16"}))
    assert not has_bfloat16(cpu_flags("vendor: other"))


@pytest.mark.parametrize(
    ("name", "local", "gpus", "chosen"),
    [("auto", 0, 1, "cuda:0"), ("cuda", 0, 1, "cuda:0"), ("cuda", 5, 4, "cuda:1"), ("cuda:2", 1, 4, "cuda:2"), ("cpu", 1, 4, "cpu")],
)
def test_a_cuda_device_is_told_with_its_number(monkeypatch: pytest.MonkeyPatch, name: str, local: int, gpus: int, chosen: str) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    assert pick_device(name, "learner.device", local) == torch.device(chosen)
    assert taken == ([torch.device(chosen)] if chosen != "cpu" else [])


REFUSALS = [  # what CUDA says -> the remedy, and the error: whether the card may come by itself
    ("The NVIDIA driver on your system is too old (found version 11040).\nPlease update", "update NVIDIA's driver", ConfigError),
    ("Unexpected error: CUDA driver version is insufficient for CUDA runtime version", "update NVIDIA's driver", ConfigError),
    ("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCompile", "let several in with `nvidia-smi -c DEFAULT`", DeviceError),
    ("CUDA error: out of memory", "`nvidia-smi` shows who has its memory", DeviceError),
    ("CUDA error: no kernel image is available for execution on the device", "install another build", ConfigError),
    ("CUDA error: something else\nand more", "something else; choose cpu or auto", DeviceError),
]
ABSENCES = [
    (AssertionError("Torch not compiled with CUDA enabled"), "install the build of torch for CUDA", ConfigError),
    (RuntimeError("Found no NVIDIA driver on your system. Please check"), "install NVIDIA's driver", ConfigError),
    (RuntimeError("The NVIDIA driver on your system is too old (found version 11040)."), "update NVIDIA's driver", ConfigError),
    (RuntimeError("No CUDA GPUs are available"), "look at `nvidia-smi`", DeviceError),
    (None, "CUDA_VISIBLE_DEVICES hides them all", ConfigError),
]


def raising(error: Exception | None) -> Callable[..., None]:
    def fails(*_: object) -> None:
        if error:
            raise error

    return fails


def refused(name: str, error: type[AzqError] = ConfigError) -> str:
    with pytest.raises(error) as caught:
        pick_device(name, "learner.device")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def falls_back(monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said while `auto` takes the CPU."""
    said: list[str] = []
    monkeypatch.setattr(device, "log", SimpleNamespace(warning=lambda _event, reason: said.append(reason)))
    monkeypatch.setattr(device, "drivers", lambda: ("cuda",))
    assert pick_device("auto", "learner.device") == torch.device("cpu")
    return " ".join(said)


@pytest.mark.parametrize("available", [True, False])
@pytest.mark.parametrize(("says", "remedy", "refusal"), REFUSALS)
def test_a_card_that_refuses_is_an_error_by_name_and_passed_over_by_auto(
    monkeypatch: pytest.MonkeyPatch, says: str, remedy: str, refusal: type[AzqError], available: bool
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.set_device", raising(RuntimeError(says)))
    for name in ("cuda", "cuda:0"):
        assert remedy in refused(name, refusal)
    assert remedy in falls_back(monkeypatch)
    assert "'cuda:1' is not on this host; use cpu or auto, `azq doctor` shows what is there" in refused("cuda:1")


@pytest.mark.parametrize(("error", "remedy", "refusal"), ABSENCES)
def test_cards_that_torch_does_not_see_are_an_error_by_name_and_passed_over_by_auto(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, remedy: str, refusal: type[AzqError]
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.cuda.init", raising(error))
    assert remedy in refused("cuda", refusal)
    assert remedy in falls_back(monkeypatch)


def test_without_a_card_auto_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "drivers", lambda: ())
    monkeypatch.setattr(device, "log", None)
    assert pick_device("auto", "learner.device") == torch.device("cpu")


def test_auto_takes_the_first_gpu_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(chosen: torch.device) -> None:
        if chosen.index == 0:
            raise RuntimeError("CUDA-capable device(s) is/are busy or unavailable")

    said: list[str] = []
    monkeypatch.setattr(device, "log", SimpleNamespace(warning=lambda _event, reason: said.append(reason)))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", busy)
    assert [pick_device("auto", "learner.device", local).index for local in (0, 1, 2)] == [1, 1, 1]
    assert len(said) == 2


GIB = 1 << 30
NVML_REFUSALS = ("CUDA-capable device(s) is/are busy or unavailable", "no kernel image is available for execution on the device")
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
    assert device.device_figures(CUDA) == MEMORY | told
    assert device.device_figures(torch.device("cpu")) == {}


def test_a_gauge_reads_until_the_device_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter(range(1, 4))

    def figures(_device: torch.device) -> dict[str, float]:
        if turn := next(turns, 0):
            return {"turn": float(turn)}
        raise RuntimeError("CUDA error: unspecified launch failure")

    idle = device.Gauge(torch.device("cpu"))
    monkeypatch.setattr(device, "device_figures", figures)
    monkeypatch.setattr(device, "GAUGE_EVERY_S", 1e-3)
    gauge = device.Gauge(CUDA)
    for thread in (idle, gauge):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert (idle.figures, gauge.figures) == ({}, {"turn": 3.0})


def test_each_card_is_tried_and_one_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def ones(_count: int, device: torch.device) -> torch.Tensor:
        if device.index:
            raise RuntimeError(f"CUDA error: {NVML_REFUSALS[device.index - 1]}\nCompile with")
        return torch.tensor([1.0])

    install(monkeypatch, None)
    facts = SimpleNamespace(name="H200", total_memory=80 * GIB, uuid="u")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _index: facts)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setattr("torch.ones", ones)
    good, busy, old = device.look_at_gpus()[0]
    assert good == Gpu("cuda:0", "H200", 80 * GIB, 72 * GIB, "u", figures=MEMORY)
    assert (busy.trouble.count("\n"), busy.uuid) == (0, "u")
    assert "nvidia-smi -c DEFAULT" in busy.trouble
    assert "another build" in old.trouble


def test_why_there_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)  # NVML counts cards for which a driver is too old
    monkeypatch.setattr(device, "no_cuda", lambda: "no driver; install it")
    assert device.look_at_gpus() == ((), "no driver; install it")
