"""What an inference worker does when a forward pass fails: the next rung of a ladder, or to leave. Pure functions; no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto

SMALLEST_BATCH = 64  # leaves below which a smaller batch saves no memory worth having


class Mode(IntEnum):
    """Ways to run a network, fastest first."""

    FAST = 0  # graphs on a CUDA device, compiled kernels on a CPU
    EAGER = 1  # op by op in the same precision
    EXACT = 2  # op by op in float32 on the same device
    PLAIN = 3  # the float32 reference on the CPU


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


HOST_WIDE = frozenset({Failure.CAPTURE})  # true of every network on the device


@dataclass(frozen=True, slots=True)
class Rung:
    """How networks are run: a mode, and the leaves of the largest batch."""

    mode: Mode
    max_batch: int

    def lower(self, other: Rung) -> Rung:
        """The more careful of each."""
        return Rung(max(self.mode, other.mode), min(self.max_batch, other.max_batch))

    def __str__(self) -> str:
        return f"{self.mode.name.lower()}, at most {self.max_batch} leaves"


@dataclass(frozen=True, slots=True)
class Leave:
    """No rung is left."""

    reason: str


def modes_on(device_type: str) -> tuple[Mode, ...]:
    """The modes that differ on a kind of device: on the CPU, exact is plain."""
    return (Mode.FAST, Mode.EAGER, Mode.PLAIN) if device_type == "cpu" else tuple(Mode)


def after(rung: Rung, failure: Failure, modes: Sequence[Mode]) -> Rung | Leave:
    """Where to go from a rung on which a forward pass failed; each step is one down, so it ends."""
    if failure is Failure.DEVICE_LOST:
        return Leave("the device is lost to this process")
    if failure is Failure.OUT_OF_MEMORY and rung.max_batch >= 2 * SMALLEST_BATCH:
        return replace(rung, max_batch=rung.max_batch // 2)
    lower = [mode for mode in modes if mode > rung.mode]
    if not lower:
        return Leave(f"even the plain forward pass failed ({describe(failure)})")
    return replace(rung, mode=min(lower))


def classify(error: BaseException) -> Failure:
    """The failure behind an exception of a forward pass, by its type and by the words of CUDA, cuDNN and torch."""
    said = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in said or "can't allocate memory" in said or "alloc_failed" in said:
        return Failure.OUT_OF_MEMORY
    if isinstance(error, CaptureRefused) or "captur" in said or "cuda graph" in said or "cudagraph" in said:
        return Failure.CAPTURE
    if any(words in said for words in PASSING):
        return Failure.BROKEN
    if type(error).__name__ == "AcceleratorError" or "cuda error" in said or "cuda driver" in said:
        return Failure.DEVICE_LOST
    return Failure.BROKEN


def describe(failure: Failure) -> str:
    """A failure in words: `out of memory`."""
    return failure.name.lower().replace("_", " ")
