"""Small networks that know what they want: trained on moves of real games until their logits are as far apart as those of strong ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from replay_games import play_game, samples_of_one

from azq import games
from azq.config import NetworkConfig
from azq.games import Game
from azq.nets import NetSpec, Network, WeightsMeta, build, to_bytes, unpack

KINDS = {
    "resnet": ("connect_four", NetworkConfig(kind="resnet", blocks=2, channels=16)),
    "parity": ("connect_four", NetworkConfig(kind="resnet", blocks=1, channels=16, parity=True)),
    "outcomes": ("backgammon", NetworkConfig(kind="mlp", blocks=2, channels=64)),
    "scalars": ("beasty_bar", NetworkConfig(kind="resnet", blocks=1, channels=16, auxiliary=("advantage",))),
    "transformer": ("blob", NetworkConfig(kind="transformer", blocks=2, channels=32, heads=4)),
    "structured": (
        "beasty_bar",
        NetworkConfig(kind="structured", blocks=1, channels=32, heads=4, encoders={"queue": 2, "bar": 1, "hand": 1}),
    ),
    "mlp": ("tic_tac_toe", NetworkConfig(kind="mlp", blocks=2, channels=32)),
}
SAMPLES = 48
STEPS = 120


@cache
def sharp_bytes(kind: str, seed: int = 3) -> bytes:
    """A network, one of `KINDS`, as published weights; the same each time for a seed."""
    name, config = KINDS[kind]
    module = build(config, games.load(name), seed=seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so little work is done sooner by one
    try:
        _train(module, name)
    finally:
        torch.set_num_threads(threads)
    return to_bytes(module, WeightsMeta(name, 1, network=config.model_dump(mode="json")))


def shaken(config: NetworkConfig, spec: NetSpec | Game, seed: int = 1) -> Any:
    """A network with every weight away from its start, as after training."""
    module, noise = build(config, spec, seed=seed).eval(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=noise))
    return module


def _train(module: Network, name: str) -> None:
    game = games.load(name)
    samples = [samples_of_one(game, play_game(game, uid), 0.0) for uid in (1, 2, 3)]
    packed, policies, returns = (
        torch.cat([torch.as_tensor(getattr(one, column)) for one in samples])[:SAMPLES] for column in ("packed", "policies", "values")
    )
    planes, scalars = unpack(packed, module.spec)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
    for _ in range(STEPS):
        logits, values = module(planes, scalars)
        loss = F.cross_entropy(logits, policies.argmax(1)) + F.mse_loss(values, returns.view_as(values))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
