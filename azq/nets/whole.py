"""Networks in whole numbers: the description that azq's own forward pass takes (`azq/nets/native`), on servers and in browsers.

What it evaluates to is the same bits everywhere. Residual networks of games without scalars and perceptrons have this form; those with
attention do not: their softmax and their normalisation are sums of floats, whose order differs from device to device.

The description: `azq1`, the shape as sixteen int32, a game's outcome weights and bias, then of each layer whole weights (outputs, inputs,
taps) in int8 or int16, padded to four bytes, and float32 scales and biases (outputs,). All little-endian.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from azq.errors import WeightsError
from azq.nets.network import Network, PlaceLinear
from azq.nets.residual import POLICY_CHANNELS, VALUE_HIDDEN, Block, GlobalResNet, Mlp, ResNet

MAGIC = b"azq1"
MAX_CELLS = 256
MAX_SIDE = 1 << 16  # inputs or outputs of a layer
_ROOM = 2**31 - 1  # of a sum
_BYTE, _WORD = 127, 1023  # the largest weights
_INPUT, _INPUT_WORD = 128, 32767  # the largest number of an observation, in sixteenths, and of the first layer's weights

Layer = nn.Conv2d | nn.Linear


def has_whole_form(network: Network) -> bool:
    """Whether `to_whole` takes it."""
    spec = network.spec
    if isinstance(network, ResNet):
        return network.scalars is None and spec.cells <= MAX_CELLS and not spec.num_outcomes
    return isinstance(network, Mlp) and spec.planes * spec.cells + spec.scalars < MAX_SIDE


def to_whole(network: Network) -> bytes:
    """The description of a network with such a form, without its auxiliary heads: the same bytes wherever it is made.

    Raises WeightsError where a weight is not finite.
    """
    spec = network.spec
    parts = [MAGIC, struct.pack("<16i", *_shape(network))]
    if spec.num_outcomes:
        parts.append(np.array([*spec.outcome_weights, spec.outcome_bias], "<f4").tobytes())
    bytewise = {layer for block in network.blocks for layer in (block.a, block.b)} if isinstance(network, ResNet) else set()
    for layer in _layers(network):
        parts += _described(layer, bytewise=layer in bytewise, first=layer is network.stem)
    return b"".join(parts)


def for_tabs(network: Network) -> bytes:
    """A network as browsers take it: in whole numbers, or as ONNX where it has no such form. Raises as `to_whole`."""
    if has_whole_form(network):
        return to_whole(network)
    from azq.nets.onnx import to_onnx

    return to_onnx(network)


def _shape(network: Network) -> list[int]:
    spec = network.spec
    ends = [spec.planes, spec.rows, spec.cols, spec.scalars, spec.num_actions, spec.value_size, spec.num_outcomes]
    if not isinstance(network, ResNet):
        assert isinstance(network, Mlp)
        return [*ends, len(network.blocks), network.stem.out_features, *[0] * 7]
    heads = [POLICY_CHANNELS, network.value_channels, VALUE_HIDDEN]
    planes = spec.action_planes if isinstance(network, GlobalResNet) else 0
    return [*ends, len(network.blocks), network.stem.out_channels, 1, *heads, planes, spec.action_layout == "columns", network.parity]


def _layers(network: Network) -> list[Layer]:
    assert isinstance(network, ResNet | Mlp)
    blocks = [layer for block in network.blocks if isinstance(block, Block) for layer in (block.a, block.b)]
    last = network.outcome if network.spec.num_outcomes else network.value
    if isinstance(network, Mlp):
        return [network.stem, *blocks, network.policy, last]
    beyond = [network.policy.beyond] if isinstance(network.policy, PlaceLinear) and network.policy.beyond is not None else []
    return [network.stem, *blocks, network.squeeze, network.policy, *beyond, network.value_hidden, last]


def _described(layer: Layer, *, bytewise: bool, first: bool) -> list[bytes]:
    """Weights as whole numbers, each output's largest as large as its sum has room for."""
    weight, bias = (_array(tensor) for tensor in (layer.weight, layer.bias))
    weight = weight.reshape(len(weight), -1)
    most = _BYTE if bytewise else min(_INPUT_WORD, _ROOM // (weight.shape[1] * _INPUT)) if first else _WORD
    scale = np.abs(weight).max(1) / np.float32(most)
    if not (np.isfinite(scale).all() and np.isfinite(bias).all()):
        raise WeightsError("weights hold a number that is not finite; the ones before stay in use")
    whole = np.rint(weight / np.where(scale > 0, scale, np.float32(1))[:, None]).astype("<i1" if bytewise else "<i2").tobytes()
    return [whole, bytes(-len(whole) % 4), scale.astype("<f4").tobytes(), bias.astype("<f4").tobytes()]


def _array(tensor: Tensor | None) -> NDArray[np.float32]:
    assert tensor is not None  # every layer of these networks has a bias
    array: NDArray[np.float32] = tensor.detach().float().cpu().contiguous().numpy()
    return array
