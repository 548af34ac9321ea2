"""The forward pass compiled into azq: the fastest there is for small boards on CPUs with AVX512-BF16, AVX512-VNNI and without AMX.

Per CPU-second it evaluates about twice as many connect-four positions as torch in bfloat16 does, and any batch size runs alike.
In int8 the blocks' convolutions multiply bytes, which is faster again (docs/benchmarks.md, "Forward passes in int8").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from azq.inference.device.forward import Landed
from azq.inference.device.placement import Placement
from azq.nets import Network
from azq.nets.device import cpu_flags, has_int8
from azq.nets.network import PlaceLinear
from azq.nets.residual import POLICY_CHANNELS, VALUE_HIDDEN, Block, GlobalResNet, ResNet

try:
    from azq import _nn
except ImportError:  # built without it: torch does the work
    _nn = None  # type: ignore[assignment]

MAX_CELLS = 256
_BESIDE = frozenset({"avx512bw", "avx512vl", "avx512dq"})  # what CPUs with int8 have, too


def suits(module: Network, placement: Placement, flags: frozenset[str] | None = None) -> bool:
    """True where the native pass takes the network and beats torch, whose AMX kernels are faster than these."""
    if _nn is None or not isinstance(module, ResNet) or placement.device.type != "cpu" or placement.dtype != torch.bfloat16:
        return False
    flags = cpu_flags() if flags is None else flags
    fits = module.scalars is None and module.spec.cells <= MAX_CELLS and not module.spec.num_outcomes
    return fits and has_int8(flags) and flags >= _BESIDE and _nn.supported()


class NativeForward:
    """Evaluates on the CPU with weights packed once a version."""

    def __init__(self, module: ResNet, threads: Callable[[], int], *, int8: bool = False) -> None:
        spec = module.spec
        self._module = module  # float32: the pass rounds by itself
        self._threads = threads
        self._actions, self._values = spec.num_actions, spec.value_size
        self._net = _nn.ResNet(
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
            int8=int8,
            action_planes=spec.action_planes if isinstance(module, GlobalResNet) else 0,
            by_column=spec.action_layout == "columns",
        )
        self.refresh()

    def launch(self, *parts: NDArray[np.uint8]) -> Landed:
        packed = parts[0] if len(parts) == 1 else np.concatenate(parts)
        logits = np.empty((len(packed), self._actions), np.float16)
        values = np.empty((len(packed), self._values), np.float16)
        self._net.forward(packed, logits.view(np.uint16), values.view(np.uint16), self._threads())
        return Landed((logits, values))

    def refresh(self) -> None:
        self._net.load([tensor for layer in _layers(self._module) for tensor in _arrays(layer)])


def _layers(module: ResNet) -> list[nn.Conv2d | nn.Linear]:
    convolutions = [layer for block in module.blocks if isinstance(block, Block) for layer in (block.a, block.b)]
    beyond = [module.policy.beyond] if isinstance(module.policy, PlaceLinear) and module.policy.beyond is not None else []
    return [module.stem, *convolutions, module.squeeze, module.policy, *beyond, module.value_hidden, module.value]


def _arrays(layer: nn.Conv2d | nn.Linear) -> list[NDArray[np.float32]]:
    assert layer.bias is not None  # every layer of a ResNet has one
    return [tensor.detach().float().contiguous().numpy() for tensor in (layer.weight, layer.bias)]
