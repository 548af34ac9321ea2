"""Forward passes: packed observations in host memory to float16 logits and values in host memory.

Letters: B batch, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from azq.inference.batching import bucket_of
from azq.nets import Network, unpack

Outputs = tuple[NDArray[np.float16], NDArray[np.float16]]  # logits (B, A), values (B, V)


class Flight(Protocol):
    """A forward pass under way."""

    @property
    def device_s(self) -> float:
        """Seconds that it kept a device of its own busy, once waited for; 0 on the CPU."""

    def wait(self) -> Outputs:
        """Its outputs; may be asked for again."""


class Forward(Protocol):
    """One network with its weights on its device."""

    def launch(self, packed: NDArray[np.uint8]) -> Flight:
        """Starts the evaluation of (B, P) observations; the caller may reuse the array at once."""

    def refresh(self) -> None:
        """Takes over the module's weights after they changed in place."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A forward pass that was over when it was launched."""

    outputs: Outputs
    device_s: float = 0.0

    def wait(self) -> Outputs:
        """The outputs."""
        return self.outputs


def as_float16(logits: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The wire's precision."""
    return logits.to(torch.float16), values.to(torch.float16)


class EagerForward:
    """Op by op, on any device. Batches are padded to `sizes`: oneDNN compiles kernels anew for every batch size it has not seen."""

    def __init__(self, module: Network, device: torch.device, sizes: tuple[int, ...]) -> None:
        self._module = module
        self._device = device
        self._sizes = sizes

    def launch(self, packed: NDArray[np.uint8]) -> Landed:
        """Evaluates at once."""
        count = len(packed)
        padded = np.zeros((bucket_of(count, self._sizes), packed.shape[1]), np.uint8)
        padded[:count] = packed
        with torch.inference_mode():
            planes, scalars = unpack(torch.from_numpy(padded).to(self._device), self._module.spec)
            logits, values = as_float16(*self._module(planes, scalars))
        return Landed((logits[:count].cpu().numpy(), values[:count].cpu().numpy()))

    def refresh(self) -> None:
        """Nothing: the module itself is run."""
