"""The forward pass compiled into azq, in whole numbers: the fastest there is for small boards on CPUs with AVX2, most of all where they
have AVX512-VNNI, and without AMX.

Per CPU-second it evaluates several times as many connect-four positions as torch does (docs/benchmarks.md), any batch size runs alike,
and what it evaluates to is the same bits everywhere: so the games of others can be checked.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from azq.inference.device.forward import CompletedBatch
from azq.nets import Network
from azq.nets.device import Placement
from azq.nets.whole import has_whole_form, to_whole


def _built(name: str) -> ModuleType | None:
    """A module of the core; None where azq was built for another kind of CPU."""
    try:
        return import_module(f"azq.{name}")
    except ImportError:
        return None


AVX512, AVX2, PLAIN = (_built(name) for name in ("_nn", "_nn_avx2", "_nn_plain"))


def fastest_kernel() -> ModuleType:
    """The fastest that this CPU runs; all give the same bits."""
    return next(kernel for kernel in (AVX512, AVX2, PLAIN) if kernel is not None and kernel.supported())


def kernel_for(module: Network, placement: Placement) -> ModuleType | None:
    """What evaluates the network natively and beats torch, whose AMX kernels are faster than these; None where nothing does."""
    if placement.device.type != "cpu" or not placement.whole or not has_whole_form(module):
        return None
    kernel = fastest_kernel()
    return kernel if kernel is not PLAIN else None


class NativeForward:
    """Evaluates on the CPU with weights packed once a version."""

    def __init__(self, kernel: ModuleType, module: Network, threads: Callable[[], int]) -> None:
        self._kernel = kernel
        self._module = module  # float32: the pass rounds by itself
        self._threads = threads
        self.refresh()

    def launch(self, *parts: NDArray[np.uint8]) -> CompletedBatch:
        packed = parts[0] if len(parts) == 1 else np.concatenate(parts)
        logits = np.empty((len(packed), self._module.spec.num_actions), np.float16)
        values = np.empty((len(packed), self._module.spec.value_size), np.float16)
        self._net.forward(packed, logits.view(np.uint16), values.view(np.uint16), self._threads())
        return CompletedBatch((logits, values))

    def refresh(self) -> None:
        self._net = self._kernel.Network(to_whole(self._module))
