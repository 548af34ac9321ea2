"""Kernels that graphs on a CUDA device may run a network by: the fastest are found by measurement, once for a shape (`Model`).

Letters: B batch, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from azq import logs
from azq.config import InferenceConfig, NetworkConfig
from azq.errors import reason_of
from azq.nets import NetSpec, Network, build, unpack
from azq.nets.residual import POLICY_CHANNELS, TORCH, VALUE_CHANNELS, GlobalResNet, Kernels, Layer, ResNet
from azq.process.start import PYTHON, bound_to_this, die_with_parent

COMPILED = "compiled"  # by torch.compile
ALIGNED = 8  # channels, and columns of a product, that cuDNN's and cuBLAS's fast kernels want a multiple of


class Pass(nn.Module):
    """A network from packed observations on: what a graph holds."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """Packed observations (B, P) to logits (B, A) and values (B, V)."""
        logits, values = self.network(*unpack(packed, self.network.spec))
        return logits, values

    def refresh(self) -> None:
        """Takes over the network's weights after they changed in place."""


class ResNetPass(Pass):
    """A ResNet in 16 bits up to the first layer of each head, which are one matrix product, summed in float32.

    That reads the trunk's channels where they lie, the last dimension of a cell; hence own weights.
    """

    network: ResNet
    _heads: Tensor
    _bias: Tensor

    def __init__(self, network: ResNet, kernels: Kernels) -> None:
        super().__init__(network)
        self._kernels = kernels
        self._layers = {network.policy: slice(0, POLICY_CHANNELS), network.value_hidden: slice(POLICY_CHANNELS, None)}
        columns, weight = sum(layer.out_features for layer in self._layers), network.squeeze.weight
        shape = (network.spec.cells, POLICY_CHANNELS + VALUE_CHANNELS, columns - columns % -ALIGNED)
        self.register_buffer("_heads", weight.new_zeros(shape), persistent=False)
        self.register_buffer("_bias", weight.new_zeros(shape[-1], dtype=torch.float32), persistent=False)

    @torch.no_grad()
    def refresh(self) -> None:
        """Lays the heads' weights (outputs, channels * cells) side by side as (cells, channels, outputs)."""
        end = 0
        for layer, channels in self._layers.items():
            begin, end = end, end + layer.out_features
            by_cell = self._heads[:, channels, begin:end]
            by_cell.copy_(layer.weight.view(layer.out_features, -1, len(by_cell)).permute(2, 1, 0))
            self._bias[begin:end] = layer.bias

    def forward(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        network = self.network
        planes, scalars = unpack(packed, network.spec, self._heads.dtype)
        x = network.trunk(planes.contiguous(memory_format=torch.channels_last), scalars, self._kernels)
        both = torch.mm(x.permute(0, 2, 3, 1).flatten(1), self._heads.flatten(0, 1), out_dtype=torch.float32) + self._bias
        logits, hidden = both[:, : network.policy.out_features], both[:, network.policy.out_features :]
        return logits, network.values_of(F.relu(hidden[:, : network.value_hidden.out_features]))[0]


def kernel_choices(network: Network, dtype: torch.dtype, *, compiled: bool, fused: bool = True) -> Mapping[str, Callable[[Network], Pass]]:
    """By name the kernels that suit a network in a precision; "", torch's own, always do."""
    plain = network if isinstance(network, ResNet) and not isinstance(network, GlobalResNet) and dtype != torch.float32 else None
    choices: dict[str, Callable[[Any], Pass]] = {}
    if plain and fused and plain.stem.out_channels % ALIGNED == 0:
        choices["fused"] = partial(ResNetPass, kernels=CUDNN)
    if compiled:
        choices[COMPILED] = partial(_compiled, partial(ResNetPass, kernels=TORCH) if plain else Pass)
    return {**choices, "": Pass}


def _compiled(make: Callable[[Network], Pass], network: Network) -> Pass:
    """With kernels for each size, made when it is called first; `made.forward` stays as it is."""
    made = make(network)
    made.compile(dynamic=False, fullgraph=True)
    return made


def _relu(layer: Layer, x: Tensor) -> Tensor:
    """Not by `cudnn_convolution_relu`, which adds 0 times its unwritten output by the same kernel: 0 * NaN is NaN."""
    return _fused(layer, x, x, 0.0) if x.shape[1] == len(layer.weight) else _sum_relu(layer, x, x.new_zeros((1, 1, 1, 1)))


def _sum_relu(layer: Layer, x: Tensor, z: Tensor) -> Tensor:
    return _fused(layer, x, z.expand(len(x), len(layer.weight), *x.shape[2:]), 1.0)


def _fused(layer: Layer, x: Tensor, z: Tensor, alpha: float) -> Tensor:
    """relu(layer(x) + alpha * z)."""
    return torch.cudnn_convolution_add_relu(_padded(x), _padded(layer.weight), z, alpha, layer.bias, *_same(layer))


def _padded(x: Tensor) -> Tensor:
    """With further channels of zeros, where their number is none that cuDNN's fused kernels take."""
    return F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % ALIGNED)) if x.shape[1] % ALIGNED else x


def _same(layer: Layer) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]:
    """Stride, padding, dilation and groups of a convolution that keeps the picture's size."""
    edge = layer.weight.shape[-1] // 2
    return (1, 1), (edge, edge), (1, 1), 1


CUDNN = Kernels(_relu, _sum_relu)  # of convolutions: bias, sum and relu cost no way through memory


COMMAND = (*PYTHON, "-m", __name__)


def can_compile() -> bool:
    """Whether torch's compiler works for GPUs here: it writes Triton, whose launchers a C compiler builds."""
    return find_spec("triton") is not None and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))


class Compilations:
    """Networks compiled by processes beside the worker, one a shape, which then loads the kernels from the cache on disk, in seconds.

    In the worker torch's compiler would hold the interpreter for minutes, beside the thread that serves. Used by one thread.
    """

    def __init__(self, config: InferenceConfig) -> None:
        self._config = config.model_copy(update={"compile": True})
        self._processes: dict[tuple[NetSpec, NetworkConfig], subprocess.Popen[bytes] | None] = {}

    def done(self, shape: tuple[NetSpec, NetworkConfig]) -> bool:
        """Whether the shape's kernels are in the cache; the first call begins with them. One that fails is not tried again."""
        if shape not in self._processes:
            try:
                self._processes[shape] = self._begin(shape)
            except OSError as error:  # no memory, no room for processes: nothing that serving needs
                self._processes[shape] = None
                logs.get(__name__).warning("not_compiled", network=shape[1].kind, reason=reason_of(error))
        process = self._processes[shape]
        return process is not None and process.poll() == 0

    def _begin(self, shape: tuple[NetSpec, NetworkConfig]) -> subprocess.Popen[bytes]:
        task = msgspec.json.encode((shape[0], shape[1].model_dump(mode="json"), self._config.model_dump(mode="json")))
        return subprocess.Popen([*COMMAND, task.decode()], **bound_to_this(os.environ))


def main() -> None:
    """The process: compiles what its one argument describes, as the worker would."""
    from azq.inference.device.engine import Engine, fastest_layout

    logs.setup("compiling")
    die_with_parent()
    spec, network, settings = msgspec.json.decode(sys.argv[1], type=tuple[NetSpec, dict[str, object], dict[str, object]])
    shape, config = (spec, NetworkConfig.model_validate(network)), InferenceConfig.model_validate(settings)
    engine = Engine(config)
    reference = fastest_layout(build(shape[1], spec, seed=0).eval().requires_grad_(False))
    engine.forward(reference, replace(engine.execution, kernels=COMPILED), shape)[1].refresh()


if __name__ == "__main__":
    main()
