"""Where and in which precision networks run on this host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from azq.config import InferenceConfig
from azq.errors import ConfigError
from azq.metrics import GPU_MEMORY_BYTES, GPU_MEMORY_USED_BYTES


@dataclass(frozen=True, slots=True)
class Placement:
    """A device with the precision and the threads that suit it."""

    device: torch.device
    dtype: torch.dtype
    threads: int  # of the CPU, for one forward pass
    cores: int = 1  # that this process may use
    int8: bool = False  # convolutions multiply bytes where a forward pass can; dtype is for all else

    @property
    def precision(self) -> str:
        """The lowest precision that networks may be run in here: `int8`, `bfloat16`, `float32`."""
        return "int8" if self.int8 else str(self.dtype).removeprefix("torch.")

    def memory(self) -> dict[str, float]:
        """A GPU's memory in use, by whomever, and in all; nothing of a CPU."""
        if self.device.type != "cuda":
            return {}
        free, total = torch.cuda.mem_get_info(self.device)
        return {GPU_MEMORY_USED_BYTES: float(total - free), GPU_MEMORY_BYTES: float(total)}


def place(config: InferenceConfig) -> Placement:
    """Resolves `auto` for this host; `ConfigError` for a device that is not there, or that has no int8."""
    device = _device(config.device)
    int8 = config.precision in ("auto", "int8") and device.type == "cpu" and has_int8(cpu_flags())
    if config.precision == "int8" and not int8:
        raise ConfigError(
            f"inference.precision 'int8' needs a CPU with AVX512-VNNI, AVX512-BF16 and no AMX, which {device} here is not; use auto"
        )
    wanted = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(config.precision)
    return Placement(device, wanted or _best_dtype(device), config.threads or max(1, _cores() - 1), _cores(), int8)


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


def has_int8(flags: frozenset[str]) -> bool:
    """True where the CPU has what the native forward pass multiplies with, and no AMX, with which torch is faster."""
    return flags >= {"avx512_bf16", "avx512_vnni"} and "amx_bf16" not in flags


def _device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda:0")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"inference.device {name!r} is not a device; use cpu, cuda, cuda:1, mps or auto") from None
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}.get(device.type, False)
    if not there or (device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()):
        raise ConfigError(f"inference.device {name!r} is not on this host; use cpu or auto")
    return torch.device("cuda:0") if name == "cuda" else device


def _best_dtype(device: torch.device) -> torch.dtype:
    if device.type == "cuda":
        return torch.bfloat16
    return torch.bfloat16 if device.type == "cpu" and has_bfloat16(cpu_flags()) else torch.float32


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
