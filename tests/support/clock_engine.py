"""A device whose batches take a fixed time and no CPU, one after the other."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.inference.device.cuda import SLOTS
from azq.inference.device.engine import Engine, Execution, Shape
from azq.inference.device.forward import EagerForward, Forward, InFlightBatch, Outputs
from azq.inference.device.model import PROBE_SIZE
from azq.nets import Network


class ClockBatch:
    """A batch in flight until a moment of the monotonic clock."""

    def __init__(self, outputs: Outputs, ends_s: float) -> None:
        self._outputs, self._ends_s = outputs, ends_s

    def done(self) -> bool:
        return time.monotonic() >= self._ends_s

    def wait(self) -> Outputs:
        time.sleep(max(0.0, self._ends_s - time.monotonic()))
        return self._outputs

    def finite(self) -> bool:
        self.wait()
        return True


class ClockEngine(Engine):
    """Networks that answer zeros after `clock_s` a batch; the few rows of the self-test are evaluated."""

    def __init__(self, *args: Any, clock_s: float) -> None:
        super().__init__(*args)
        self.execution = Execution(self.execution.mode, args[0].max_batch)
        self._clock_s, self._free_s = clock_s, 0.0

    def forward(self, reference: Network, execution: Execution, _shape: Shape) -> tuple[Network, Forward]:
        return reference, ClockForward(self, reference, execution.max_batch)

    @property
    def in_flight(self) -> int:
        return SLOTS

    def end_s(self) -> float:
        """When a batch that is launched now ends."""
        self._free_s = max(self._free_s, time.monotonic()) + self._clock_s
        return self._free_s


class ClockForward:
    def __init__(self, engine: ClockEngine, reference: Network, max_batch: int) -> None:
        self._engine, spec = engine, reference.spec
        self._probe = EagerForward(reference, engine.placement.device, (PROBE_SIZE,))
        self._outputs = (np.zeros((max_batch, spec.num_actions), np.float16), np.zeros((max_batch, spec.value_size), np.float16))

    def launch(self, *parts: NDArray[np.uint8]) -> InFlightBatch:
        if (count := sum(map(len, parts))) <= PROBE_SIZE:
            return self._probe.launch(*parts)
        logits, values = self._outputs
        return ClockBatch((logits[:count], values[:count]), self._engine.end_s())

    def refresh(self) -> None:
        """Weights change nothing but the self-test."""
