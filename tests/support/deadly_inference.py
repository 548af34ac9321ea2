"""An inference worker that dies, as a crash in native code does, of any request that holds a marked observation."""

from __future__ import annotations

import os

import numpy as np
from inference_doubles import CONFIG, SPEC, Shelf, make_server, weights
from numpy.typing import NDArray

from azq.bus.redis import RedisBus
from azq.inference.device.engine import Engine, Execution, Shape
from azq.inference.device.forward import Forward, InFlightBatch
from azq.inference.serve.trials import Patience, Trials
from azq.nets import Network
from azq.nets.device import place

SEGFAULT = 139
QUICK = Patience(deaths=2, wait_s=0.3)


def poison(count: int) -> NDArray[np.uint8]:
    """Observations (count, P), the last of which kills."""
    packed = np.zeros((count, SPEC.packed_size), np.uint8)
    packed[-1] = 255
    return packed


class DeadlyEngine(Engine):
    """Its forward passes look for the mark first."""

    def forward(self, reference: Network, execution: Execution, shape: Shape) -> tuple[Network, Forward]:
        module, forward = super().forward(reference, execution, shape)
        return module, Deadly(forward)


class Deadly:
    """A forward pass that ends its process."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward

    def launch(self, *parts: NDArray[np.uint8]) -> InFlightBatch:
        if any((part == 255).all(1).any() for part in parts):
            os._exit(SEGFAULT)
        return self._forward.launch(*parts)

    def refresh(self) -> None:
        self._forward.refresh()


def serve_for_ever(control_url: str, data_url: str) -> None:
    """The process; its weights are version 1 of the doubles'."""
    control, data = RedisBus(control_url), RedisBus(data_url)
    shelf, name = Shelf(control), f"inference@test:{os.getpid()}"
    shelf.blobs["shelf:1"] = weights(1)
    server = make_server(control, data, shelf, name, engine=DeadlyEngine(CONFIG, place(CONFIG)))
    server._trials = Trials(control, name, QUICK)
    while True:
        server.step(20)
