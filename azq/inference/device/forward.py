"""Forward passes: packed observations in host memory to float16 logits and values in host memory.

Letters: B batch, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from azq.nets import Network, unpack
from azq.nets.device import is_out_of_memory


class Failure(Enum):
    """What went wrong with a forward pass."""

    OUT_OF_MEMORY = auto()
    CAPTURE = auto()  # a graph could not be recorded
    DEVICE_LOST = auto()  # nothing that this process asks of the device will be answered any more
    NOT_FINITE = auto()  # NaN or infinity where the reference has neither
    WRONG = auto()  # finite, and too far from the reference
    BROKEN = auto()  # any other error


# Words of errors after which a CUDA device answers as before: this call could not be made, the next one may.
PASSING = ("not_supported", "not supported", "invalid_value", "invalid argument", "invalid configuration", "invalid device function",
           "no kernel image", "not permitted", "not_initialized", "too many resources")  # fmt: skip


class CaptureRefused(RuntimeError):
    """A graph that could not be recorded."""


def classify(error: BaseException) -> Failure:
    """The failure behind an exception of a forward pass, by its type and by the words of CUDA, cuDNN and torch."""
    message = str(error).lower()
    if is_out_of_memory(error):
        return Failure.OUT_OF_MEMORY
    if isinstance(error, CaptureRefused) or "captur" in message or "cuda graph" in message or "cudagraph" in message:
        return Failure.CAPTURE
    if any(words in message for words in PASSING):
        return Failure.BROKEN
    if type(error).__name__ == "AcceleratorError" or "cuda error" in message or "cuda driver" in message:
        return Failure.DEVICE_LOST
    return Failure.BROKEN


def describe(failure: Failure) -> str:
    """A failure in words: `out of memory`."""
    return failure.name.lower().replace("_", " ")


Outputs = tuple[NDArray[np.float16], NDArray[np.float16]]  # logits (B, A), values (B, V)

SMALLEST_ON_GPU = 64  # leaves below which a GPU takes no less time
LARGE_ON_GPU = 2048  # leaves from which on a GPU is filled, so that time grows with rows

_EXPONENT = np.uint16(0x7C00)  # all ones in a float16 that is NaN or infinite


class InFlightBatch(Protocol):
    """A forward pass of one batch, launched and not waited for."""

    def done(self) -> bool:
        """Whether `wait` would return or raise at once."""

    def wait(self) -> Outputs:
        """Its outputs; may be asked for again. Raises what the device raised."""

    def finite(self) -> bool:
        """Whether all outputs are; waits like `wait`."""


class Forward(Protocol):
    """One network with its weights on its device."""

    def launch(self, *parts: NDArray[np.uint8]) -> InFlightBatch:
        """Starts the evaluation of arrays (B_i, P), one after the other; the caller may reuse them at once."""

    def refresh(self) -> None:
        """Takes over the module's weights after they changed in place."""


@dataclass(frozen=True, slots=True)
class CompletedBatch:
    """A forward pass that ended within its launch: with outputs, or with the error that ended it."""

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


def gather(parts: tuple[NDArray[np.uint8], ...], into: NDArray[np.uint8]) -> int:
    """Writes arrays (B_i, P) one after the other into a buffer; returns their rows."""
    end = 0
    for part in parts:
        start, end = end, end + len(part)
        into[start:end] = part
    return end


class EagerForward:
    """Op by op, on any device. Batches are padded to `sizes`: oneDNN compiles kernels for every batch size it has not seen."""

    def __init__(
        self, module: Network, device: torch.device, sizes: tuple[int, ...], exclusive: AbstractContextManager[object] = nullcontext()
    ) -> None:
        self._module = module
        self._exclusive = exclusive  # held while the device is used
        self._device = device
        self._sizes = sizes
        self._input = torch.zeros((sizes[-1], module.spec.packed_size), dtype=torch.uint8)

    def launch(self, *parts: NDArray[np.uint8]) -> CompletedBatch:
        """Evaluates at once. Rows of padding hold what an earlier batch left there."""
        size = bucket_of(sum(map(len, parts)), self._sizes)
        count = gather(parts, self._input.numpy())
        with self._exclusive, torch.inference_mode():
            planes, scalars = unpack(self._input[:size].to(self._device), self._module.spec)
            logits, values = (output.to(torch.float16)[:count].cpu().numpy() for output in self._module(planes, scalars))
        return CompletedBatch((logits, values))

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


def gpu_buckets(max_batch: int) -> tuple[int, ...]:
    """The few sizes of a GPU, each a graph: powers of two, and where rows of padding begin to cost, what lies half way between them."""
    small = buckets(max_batch, per_octave=1, smallest=SMALLEST_ON_GPU)
    return tuple(sorted({*small, *buckets(max_batch, per_octave=2, smallest=LARGE_ON_GPU)}))


def bucket_of(count: int, sizes: Sequence[int]) -> int:
    """The smallest bucket that holds `count` leaves; ValueError when none does."""
    index = bisect_left(sizes, count)
    if index == len(sizes):
        raise ValueError(f"{count} leaves exceed the largest bucket of {sizes[-1]}")
    return sizes[index]
