"""Where and in which precision networks run on this host."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from azq.config import InferenceConfig
from azq.errors import ConfigError
from azq.nets.device import cpu_flags, fastest_dtype, pick_device, whole_numbers
from azq.process.proc import usable_cores

NEEDS = {"int8": "a CPU with AVX512-VNNI, AVX512-BF16 and no AMX", "int16": "a CPU with AVX2 and no AVX512"}


@dataclass(frozen=True, slots=True)
class Placement:
    """A device with the precision and the threads that suit it."""

    device: torch.device
    dtype: torch.dtype
    threads: int  # of the CPU, for one forward pass
    cores: int = 1  # that this process may use
    whole: str = ""  # int8 or int16: convolutions multiply such numbers where a forward pass can; dtype is for all else

    @property
    def precision(self) -> str:
        """The lowest precision that networks may be run in here: `int8`, `int16`, `bfloat16`, `float32`."""
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
