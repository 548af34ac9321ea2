"""Where training runs, and in which precision."""

from __future__ import annotations

import os

import torch

from azq.config import LearnerConfig
from azq.errors import ConfigError


def pick_device(name: str, local_rank: int = 0) -> torch.device:
    """The device of a setting; `auto` takes CUDA, then MPS, then the CPU. Raises `ConfigError` for one that is not there.

    Without a number, CUDA is the GPU of this host's rank `local_rank`. It becomes this thread's own: marks on a queue of work, and
    NCCL, go by that.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and torch.cuda.device_count() > 1:
        name = f"cuda:{local_rank % torch.cuda.device_count()}"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"learner.device = {name!r} cannot be used here: {str(error).splitlines()[0]}; choose cpu or auto") from None
    return device


def autocast_dtype(config: LearnerConfig, device: torch.device) -> torch.dtype | None:
    """bfloat16 where it is asked for or faster: CUDA, and CPUs whose instructions include it; None for plain float32."""
    if config.precision == "float32":
        return None
    if config.precision == "bfloat16":
        return torch.bfloat16
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else None
    return torch.bfloat16 if device.type == "cpu" and cpu_has_bfloat16() else None


def cpu_has_bfloat16() -> bool:
    """True when the CPU multiplies bfloat16 (AVX512-BF16 or AMX); elsewhere torch emulates it, slower than float32."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # an older torch on a GPU machine does not say
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def pick_threads(config: LearnerConfig, device: torch.device) -> int:
    """Threads for torch: the setting, else a rank's share of half the cores on a CPU, since self-play wants the others."""
    if config.threads:
        return config.threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // 2 // config.ranks) if device.type == "cpu" else 1
