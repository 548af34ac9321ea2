"""The forward pass compiled into azq: the fastest there is for small boards on CPUs with AVX512-BF16, AVX512-VNNI and without AMX, and
on those with AVX2 alone.

Per CPU-second it evaluates about twice as many connect-four positions as torch does, and any batch size runs alike. With whole
numbers in the blocks' convolutions it is faster again (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from azq.inference.device.forward import CompletedBatch
from azq.nets import Network
from azq.nets.device import Placement, cpu_flags, whole_numbers
from azq.nets.network import PlaceLinear
from azq.nets.residual import POLICY_CHANNELS, VALUE_HIDDEN, Block, GlobalResNet, ResNet


def _built(name: str) -> ModuleType | None:
    """A module of the core; None where azq was built without it: torch does the work."""
    try:
        return import_module(f"azq.{name}")
    except ImportError:
        return None


AVX512, AVX2 = _built("_nn"), _built("_nn_avx2")
MAX_CELLS = 256
_BESIDE = frozenset({"avx512bw", "avx512vl", "avx512dq"})  # what CPUs with int8 have, too


def kernel_for(module: Network, placement: Placement, flags: frozenset[str] | None = None) -> ModuleType | None:
    """What evaluates the network natively and beats torch, whose AMX kernels are faster than these; None where nothing does."""
    if not isinstance(module, ResNet) or placement.device.type != "cpu":
        return None
    flags = cpu_flags() if flags is None else flags
    if whole_numbers(flags) == "int8" and flags >= _BESIDE and placement.dtype == torch.bfloat16:
        kernel = AVX512
    else:  # float32 that was asked for by name stays torch's
        kernel = AVX2 if placement.whole == "int16" else None
    fits = module.scalars is None and module.spec.cells <= MAX_CELLS and not module.spec.num_outcomes
    return kernel if fits and kernel is not None and kernel.supported() else None


class NativeForward:
    """Evaluates on the CPU with weights packed once a version."""

    def __init__(self, kernel: ModuleType, module: ResNet, threads: Callable[[], int], *, quantised: bool = False) -> None:
        spec = module.spec
        self._module = module  # float32: the pass rounds by itself
        self._threads = threads
        self._actions, self._values = spec.num_actions, spec.value_size
        self._net = kernel.ResNet(
            planes=spec.planes,
            rows=spec.rows,
            cols=spec.cols,
            actions=spec.num_actions,
            values=spec.value_size,
            blocks=len(module.blocks),
            channels=module.stem.out_channels,
            policy_channels=POLICY_CHANNELS,
            value_channels=module.value_channels,
            value_hidden=VALUE_HIDDEN,
            quantised=quantised,
            action_planes=spec.action_planes if isinstance(module, GlobalResNet) else 0,
            by_column=spec.action_layout == "columns",
            parity=module.parity,
        )
        self.refresh()

    def launch(self, *parts: NDArray[np.uint8]) -> CompletedBatch:
        packed = parts[0] if len(parts) == 1 else np.concatenate(parts)
        logits = np.empty((len(packed), self._actions), np.float16)
        values = np.empty((len(packed), self._values), np.float16)
        self._net.forward(packed, logits.view(np.uint16), values.view(np.uint16), self._threads())
        return CompletedBatch((logits, values))

    def refresh(self) -> None:
        self._net.load([tensor for layer in _layers(self._module) for tensor in _arrays(layer)])


def _layers(module: ResNet) -> list[nn.Conv2d | nn.Linear]:
    convolutions = [layer for block in module.blocks if isinstance(block, Block) for layer in (block.a, block.b)]
    beyond = [module.policy.beyond] if isinstance(module.policy, PlaceLinear) and module.policy.beyond is not None else []
    return [module.stem, *convolutions, module.squeeze, module.policy, *beyond, module.value_hidden, module.value]


def _arrays(layer: nn.Conv2d | nn.Linear) -> list[NDArray[np.float32]]:
    assert layer.bias is not None  # every layer of a ResNet has one
    return [tensor.detach().float().contiguous().numpy() for tensor in (layer.weight, layer.bias)]
