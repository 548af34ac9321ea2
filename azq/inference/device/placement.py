"""Where and in which precision networks run on this host."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from azq.config import InferenceConfig
from azq.errors import ConfigError
from azq.nets.device import cpu_flags, fastest_dtype, has_int8, pick_device
from azq.process.proc import usable_cores


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


def place(config: InferenceConfig) -> Placement:
    """Resolves `auto` for this host; `ConfigError` for a device that is not there, or that has no int8."""
    device, cores = pick_device(config.device, "inference.device"), usable_cores()
    int8 = config.precision in ("auto", "int8") and device.type == "cpu" and has_int8(cpu_flags())
    if config.precision == "int8" and not int8:
        raise ConfigError(
            f"inference.precision 'int8' needs a CPU with AVX512-VNNI, AVX512-BF16 and no AMX, which {device} here is not; use auto"
        )
    wanted = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(config.precision)
    return Placement(device, wanted or fastest_dtype(device), config.threads or max(1, cores - 1), cores, int8)
