"""Time that work takes on a device, or that a rank waits."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Stopwatch(Protocol):
    """Adds up the time between `begin` and `end`; `begin` again before an `end` starts anew."""

    def begin(self) -> None: ...
    def end(self) -> None: ...
    def taken_s(self) -> float: ...


class HostStopwatch:
    """By the host's clock, where a call returns when its work is done."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._taken_s = 0.0

    def begin(self) -> None:
        """Starts anew."""
        self._begun = time.perf_counter()

    def end(self) -> None:
        """Adds what passed since `begin`."""
        if self._begun is not None:
            self._taken_s += time.perf_counter() - self._begun
            self._begun = None

    def taken_s(self) -> float:
        """Seconds since the last call."""
        taken, self._taken_s = self._taken_s, 0.0
        return taken


class CudaStopwatch:
    """By marks on the device's queue of work, where calls return before their work is done."""

    def __init__(self) -> None:
        self._begun: Any = None
        self._pairs: list[tuple[Any, Any]] = []

    def begin(self) -> None:
        """Starts anew."""
        self._begun = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._begun.record()

    def end(self) -> None:
        """Notes what passed since `begin`."""
        if self._begun is not None:
            ended = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            ended.record()
            self._pairs.append((self._begun, ended))
            self._begun = None

    def taken_s(self) -> float:
        """Seconds since the last call; waits for the device."""
        if self._pairs:
            self._pairs[-1][1].synchronize()
        taken = sum(begun.elapsed_time(ended) for begun, ended in self._pairs) / 1e3
        self._pairs.clear()
        return float(taken)


def stopwatch(device: torch.device) -> Stopwatch:
    """What measures work on a device."""
    return CudaStopwatch() if device.type == "cuda" else HostStopwatch()
