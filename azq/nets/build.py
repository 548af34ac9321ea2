"""From settings to a network."""

from __future__ import annotations

import torch

from azq.config import NetworkConfig
from azq.nets.mlp import Mlp
from azq.nets.network import Network
from azq.nets.resnet import ResNet
from azq.nets.spec import GameShape, NetSpec
from azq.nets.transformer import Transformer


def build(network: NetworkConfig, game: GameShape | NetSpec, *, seed: int | None = None) -> Network:
    """A freshly initialised network for a game; equal seeds give equal weights.

    Raises ConfigError when the kind of network cannot take the game's observations, or the game has no targets for an auxiliary head.
    """
    spec = game if isinstance(game, NetSpec) else NetSpec.of(game)
    if seed is None:
        return _make(network, spec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _make(network, spec)


def _make(network: NetworkConfig, spec: NetSpec) -> Network:
    size = spec, network.blocks, network.channels
    if network.kind == "transformer":
        return Transformer(*size, network.heads, network.auxiliary)
    kind = ResNet if network.kind == "resnet" else Mlp
    return kind(*size, network.auxiliary)
