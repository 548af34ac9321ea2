"""The devices of this host with torch: which one a process computes on, what it is fast at, and what its driver tells of each."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import msgspec
import torch

from azq import logs, metrics
from azq.config import InferenceConfig
from azq.errors import ConfigError, DeviceError
from azq.phases import DeviceEvent
from azq.process.cards import Cards, Gpu, drivers
from azq.process.proc import usable_cores

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
KEPT_BYTES = 1 << 30  # freed memory at the heap's end that is not given back
LARGEST_BLOCK_BYTES = 32 << 20  # the largest that glibc lets come from the heap
UPDATE = "update NVIDIA's driver, or take the build of torch for CUDA 12.6, by the `pip install` that PyTorch's page names"
#: a part of what CUDA says, in small letters -> what to do about it
REMEDIES = {
    "not compiled with cuda": "install the build of torch for CUDA or, where the card is AMD's, for ROCm",
    "no nvidia driver": "install NVIDIA's driver, so that `nvidia-smi` shows the card",
    "too old": UPDATE,
    "driver version is insufficient": UPDATE,
    "busy or unavailable": "another process has the card to itself: end it, or let several in with `nvidia-smi -c DEFAULT`",
    "out of memory": "`nvidia-smi` shows who has its memory: end that, or take another card",
    "no kernel image": "this torch has no kernels for such a card; install another build",
    "no cuda gpus": "CUDA_VISIBLE_DEVICES may hide them, else look at `nvidia-smi` and `dmesg`",
}
HIDDEN = "CUDA_VISIBLE_DEVICES hides them all"
#: parts of what is said where a device cannot come by itself, however long its driver takes to load and whichever process has it now
LASTING = ("not compiled with cuda", "no nvidia driver", "too old", "driver version is insufficient", "no kernel image", HIDDEN.lower())

log = logs.get(__name__)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says, by its type or by the words of CUDA, cuDNN and torch, that there was no memory left."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or any(words in message for words in ("out of memory", "can't allocate memory", "alloc_failed"))


def pick_device(name: str, setting: str, local: int = 0) -> torch.device:
    """The device of a setting; `auto` takes the first GPU that works, then MPS, then the CPU, and says why it passes one over.

    Raises for one that is named as `absent`, `DeviceError` where another process has it. Without a number, CUDA is the GPU of this
    host's process `local`, and what is returned has one. It becomes this thread's own: marks on a queue of work, and NCCL, go by that.
    """
    if name == "auto":
        return _best(setting, local)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"{setting} = {name!r} is not a device; use cpu, cuda, cuda:1, mps or auto") from None
    if not is_there(device):
        raise absent(f"{setting} = {name!r} is", device.type)
    if device.type == "cuda":
        device = torch.device("cuda", local % torch.cuda.device_count() if device.index is None else device.index)
        try:
            torch.cuda.set_device(device)  # which makes a context there, and so fails where none can be had
        except (RuntimeError, AssertionError) as error:
            reason = explained(error)
            raise _refusal(reason)(f"{setting} = {name!r} cannot be used here: {reason}; choose cpu or auto") from None
    return device


def is_there(device: torch.device) -> bool:
    """Whether torch counts it; one that it counts may still not work."""
    return (device.index or 0) < _count(device.type)


def absent(what: str, kind: str) -> ConfigError | DeviceError:
    """The error of devices that are not there, which may be late where their driver does not answer: then `DeviceError`."""
    reason = "" if _count(kind) or kind != "cuda" else no_cuda()
    error = _refusal(reason) if reason else ConfigError
    return error(f"{what} not on this host{f' ({reason})' * bool(reason)}; use cpu or auto, `azq doctor` shows what is there")


def _refusal(reason: str) -> type[ConfigError | DeviceError]:
    return ConfigError if any(part in reason.lower() for part in LASTING) else DeviceError


def _count(kind: str) -> int:
    return {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}.get(kind, 0)


def _best(setting: str, local: int) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0  # the former may count cards that CUDA cannot use
    names = [f"cuda:{(local + further) % count}" for further in range(count)] or ["cuda"] * bool(drivers())
    for name in names:
        try:
            return pick_device(name, setting)
        except (ConfigError, DeviceError) as error:
            log.warning("gpu_passed_over", reason=str(error))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def no_cuda() -> str:
    """Why torch counts no GPU, and the remedy."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return explained(error)
    return HIDDEN


def explained(error: Exception) -> str:
    """The first line of what CUDA says and, where it is known, the remedy."""
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    remedy = next((remedy for part, remedy in REMEDIES.items() if part in reason.lower()), "")
    return f"{reason.rstrip('.')}; {remedy}" if remedy else reason


def fastest_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on GPUs and CPUs that multiply it, float16 on GPUs with tensor cores for that alone (Volta, Turing), else float32.

    Where the hardware lacks bfloat16 torch emulates it, slower than float32.
    """
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        return torch.float16 if torch.cuda.get_device_capability(device)[0] == 7 else torch.float32
    return torch.bfloat16 if device.type == "cpu" and has_bfloat16(cpu_flags()) else torch.float32


def cpu_flags(cpuinfo: str | None = None) -> frozenset[str]:
    """The CPU's feature flags by their Linux names; empty where the system does not tell."""
    if cpuinfo is None:
        path = Path("/proc/cpuinfo")
        cpuinfo = path.read_text("utf-8", "replace") if path.is_file() else ""
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def has_bfloat16(flags: frozenset[str]) -> bool:
    """True where the CPU multiplies bfloat16 in hardware, which doubles or better the forward pass."""
    return bool(flags & {"avx512_bf16", "amx_bf16"})


def whole_numbers(flags: frozenset[str]) -> str:
    """In what the native forward pass computes on such a CPU: `int8`, or "" where torch is faster (AMX), or there is no AVX2.

    AVX512-VNNI multiplies bytes, 2.4 to 9.6 times as fast as float32; AVX2 multiplies them as 16 bits, 1.2 to 2.9 times.
    """
    return "int8" if flags >= {"avx2", "fma", "f16c"} and "amx_bf16" not in flags else ""


def device_mark(*, blocking: bool = False) -> DeviceEvent:
    """A timing mark for the queue of work in use; `blocking`: a host thread that waits for it leaves its core to the others."""
    return cast(DeviceEvent, torch.cuda.Event(enable_timing=True, blocking=blocking))  # type: ignore[no-untyped-call]


def prepare_process(threads: int) -> None:
    """Settles this process for computing on `threads` threads of the CPU."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    # Torch keeps compiled kernels in the temporary folder, which a service loses at each restart.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache / "azq" / "inductor"))


def keep_freed_memory() -> bool:
    """Has malloc hand the same memory out again instead of giving it back to the system; False where malloc is not glibc's.

    A tensor of a megabyte is otherwise mapped and unmapped in every step, and the kernel zeroes each of its pages when it is
    touched: a third of the CPU time of training a small network, and of evaluating a perceptron in large batches.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_BLOCK_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


GAUGE_EVERY_S = 5.0  # between two readings of a gauge
#: of NVML, or of AMD's library where torch is built for ROCm -> factor to the figure's unit
READINGS: dict[str, tuple[Callable[[torch.device], int], float]] = {
    metrics.GPU_BUSY: (torch.cuda.utilization, 1e-2),
    metrics.GPU_POWER_W: (torch.cuda.power_draw, 1e-3),
    metrics.GPU_TEMPERATURE_C: (torch.cuda.temperature, 1.0),
}


def look_at_gpus() -> Cards:
    """Each GPU that torch counts, tried; or why it counts none."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(map(_gpu, range(count))), "" if count else no_cuda()


def print_survey() -> None:
    """Prints the same as JSON, in another process."""
    sys.stdout.write(msgspec.json.encode(look_at_gpus()).decode() + "\n")


def _gpu(index: int) -> Gpu:
    device = torch.device("cuda", index)
    gpu = Gpu(str(device))
    try:
        facts = torch.cuda.get_device_properties(device)
        gpu = replace(gpu, name=facts.name, memory_bytes=facts.total_memory, uuid=str(facts.uuid))
        torch.ones(1, device=device).sum().item()  # the first kernel: some cards fail only here
        figures = device_figures(device)
    except (RuntimeError, AssertionError) as error:
        return replace(gpu, trouble=explained(error))
    return replace(gpu, free_bytes=int(figures[metrics.GPU_MEMORY_BYTES] - figures[metrics.GPU_MEMORY_USED_BYTES]), figures=figures)


def device_figures(device: torch.device) -> dict[str, float]:
    """A GPU's memory in use, by whomever, and in all; load, power and temperature where nvidia-ml-py is installed; nothing of a CPU."""
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    figures = {metrics.GPU_MEMORY_USED_BYTES: float(total - free), metrics.GPU_MEMORY_BYTES: float(total)}
    for name, (read, factor) in READINGS.items():
        try:
            figures[name] = factor * read(device)
        except Exception:  # no such library, or a card that does not tell this
            continue
    return figures


class Gauge(threading.Thread):
    """Reads a device's figures now and then, beside the thread that works: a driver takes its time to tell."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(name="gauge", daemon=True)
        self.figures: dict[str, float] = {}
        self._device = device
        self.start()

    def run(self) -> None:
        """Reads as long as its process lives; of a device that is lost the last figures stay, and its process says what is wrong."""
        with contextlib.suppress(RuntimeError, AssertionError):
            while figures := device_figures(self._device):
                self.figures = figures
                time.sleep(GAUGE_EVERY_S)


NEEDS = {"int8": "a CPU with AVX2 and no AMX"}


@dataclass(frozen=True, slots=True)
class Placement:
    """A device with the precision and the threads that suit it."""

    device: torch.device
    dtype: torch.dtype
    threads: int  # of the CPU, for one forward pass
    cores: int = 1  # that this process may use
    whole: str = ""  # int8: networks with a form in whole numbers are evaluated in it; dtype is for all else

    @property
    def precision(self) -> str:
        """The lowest precision that networks may be run in here: `int8`, `bfloat16`, `float32`."""
        return self.whole or str(self.dtype).removeprefix("torch.")


def place(config: InferenceConfig) -> Placement:
    """Resolves `auto` for this host; `ConfigError` for a device that is not there, or numbers that it has not."""
    device, cores = pick_device(config.device, "inference.device"), usable_cores()
    whole = whole_numbers(cpu_flags()) if device.type == "cpu" else ""
    if config.precision in NEEDS and config.precision != whole:
        raise ConfigError(f"inference.precision {config.precision!r} needs {NEEDS[config.precision]}, which {device} here is not; use auto")
    if config.precision != "auto" and config.precision != whole:
        whole = ""
    wanted = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(config.precision)
    return Placement(device, wanted or fastest_dtype(device), config.threads or max(1, cores - 1), cores, whole)
