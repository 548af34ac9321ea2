"""From settings to a network."""

from __future__ import annotations

import torch

from azq.config import NetworkConfig
from azq.nets.mlp import Mlp
from azq.nets.resnet import ResNet
from azq.nets.spec import GameShape, NetSpec

Network = ResNet | Mlp


def build(network: NetworkConfig, game: GameShape | NetSpec, *, seed: int | None = None) -> Network:
    """A freshly initialised network for a game; equal seeds give equal weights.

    Raises ConfigError when the kind of network cannot take the game's observations.
    """
    spec = game if isinstance(game, NetSpec) else NetSpec.of(game)
    kind = ResNet if network.kind == "resnet" else Mlp
    if seed is None:
        return kind(spec, network.blocks, network.channels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(spec, network.blocks, network.channels)
