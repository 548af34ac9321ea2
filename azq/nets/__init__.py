"""Networks: packed observations in, policy logits and values out; their weights as safetensors."""

from __future__ import annotations

import torch

from azq.config import NetworkConfig
from azq.nets.network import Network, Outputs, unpack, unpack_bits
from azq.nets.residual import GlobalResNet, Mlp, ResNet
from azq.nets.spec import GameShape, NetSpec
from azq.nets.transformer import Structured, Transformer
from azq.nets.weights import WeightsMeta, from_bytes, load_into, network_of, to_bytes

__all__ = [
    "NetSpec", "Network", "Outputs", "WeightsMeta", "build", "from_bytes", "load_into", "network_of", "restore",
    "to_bytes", "unpack", "unpack_bits",
]  # fmt: skip


def build(network: NetworkConfig, game: GameShape | NetSpec, *, seed: int | None = None) -> Network:
    """A freshly initialised network for a game; equal seeds give equal weights.

    Raises ConfigError when the kind of network cannot take the game's observations, or the game has no targets for an auxiliary head.
    """
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        size = NetSpec.of(game), network.blocks, network.channels
        if network.kind == "transformer":
            return Transformer(*size, network.heads, network.auxiliary)
        if network.kind == "structured":
            return Structured(*size, network.heads, network.encoders, network.auxiliary)
        if network.kind == "mlp":
            return Mlp(*size, network.auxiliary)
        return (GlobalResNet if network.global_heads else ResNet)(*size, network.auxiliary, network.parity)


def restore(data: bytes, game: GameShape | NetSpec) -> Network:
    """The network that weights are for, with them, ready to evaluate; `WeightsError` where they are damaged or do not fit the game."""
    state, meta = from_bytes(data)
    network = build(network_of(meta), game).eval().requires_grad_(False)
    load_into(network, state)
    return network
