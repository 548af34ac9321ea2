"""Forward passes: packed observations in host memory to float16 logits and values in host memory.

Letters: B batch, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from azq.nets import Network, unpack

Outputs = tuple[NDArray[np.float16], NDArray[np.float16]]  # logits (B, A), values (B, V)

_EXPONENT = np.uint16(0x7C00)  # all ones in a float16 that is NaN or infinite


class Flight(Protocol):
    """A forward pass under way."""

    def done(self) -> bool:
        """Whether `wait` would return or raise at once."""

    def wait(self) -> Outputs:
        """Its outputs; may be asked for again. Raises what the device raised."""

    def finite(self) -> bool:
        """Whether all outputs are; waits like `wait`."""


class Forward(Protocol):
    """One network with its weights on its device."""

    def launch(self, *parts: NDArray[np.uint8]) -> Flight:
        """Starts the evaluation of arrays (B_i, P), one after the other; the caller may reuse them at once."""

    def refresh(self) -> None:
        """Takes over the module's weights after they changed in place."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A forward pass that was over when it was launched: with outputs, or with the error that ended it."""

    outputs: Outputs | Exception

    def done(self) -> bool:
        return True

    def wait(self) -> Outputs:
        if isinstance(self.outputs, Exception):
            raise self.outputs
        return self.outputs

    def finite(self) -> bool:
        return all(map(all_finite, self.wait()))


def all_finite(values: NDArray[np.float16]) -> bool:
    """Whether no float16 is NaN or infinite; by the exponent's bits, many times faster than numpy's own test."""
    return not ((values.view(np.uint16) & _EXPONENT) == _EXPONENT).any()


def as_float16(logits: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return logits.to(torch.float16), values.to(torch.float16)


def gather(parts: tuple[NDArray[np.uint8], ...], into: NDArray[np.uint8]) -> int:
    """Writes arrays (B_i, P) one after the other into a buffer; returns their rows."""
    end = 0
    for part in parts:
        start, end = end, end + len(part)
        into[start:end] = part
    return end


class EagerForward:
    """Op by op, on any device. Batches are padded to `sizes`: oneDNN compiles kernels anew for every batch size it has not seen."""

    def __init__(self, module: Network, device: torch.device, sizes: tuple[int, ...]) -> None:
        self._module = module
        self._device = device
        self._sizes = sizes
        self._input = torch.zeros((sizes[-1], module.spec.packed_size), dtype=torch.uint8)

    def launch(self, *parts: NDArray[np.uint8]) -> Landed:
        """Evaluates at once. Rows of padding hold what an earlier batch left there."""
        size = bucket_of(sum(map(len, parts)), self._sizes)
        count = gather(parts, self._input.numpy())
        with torch.inference_mode():
            planes, scalars = unpack(self._input[:size].to(self._device), self._module.spec)
            logits, values = as_float16(*self._module(planes, scalars))
        return Landed((logits[:count].cpu().numpy(), values[:count].cpu().numpy()))

    def refresh(self) -> None:
        """Nothing: the module itself is run."""


def buckets(max_batch: int, *, per_octave: int, smallest: int = 1) -> tuple[int, ...]:
    """Batch sizes that are padded to, ascending from `smallest` to `max_batch`; `per_octave` of them between powers of two."""
    sizes = {max_batch}
    octave = 1
    while octave < max_batch:
        sizes.update(octave + octave * step // per_octave for step in range(per_octave))
        octave *= 2
    return tuple(sorted(size for size in sizes if min(smallest, max_batch) <= size <= max_batch))


def bucket_of(count: int, sizes: Sequence[int]) -> int:
    """The smallest bucket that holds `count` leaves; ValueError when none does."""
    index = bisect_left(sizes, count)
    if index == len(sizes):
        raise ValueError(f"{count} leaves exceed the largest bucket of {sizes[-1]}")
    return sizes[index]
