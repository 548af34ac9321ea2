"""What a run asks of machines for each position: arithmetic and memory of its network, bytes on the wire, plies of a game."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from azq import games
from azq.config import NetworkConfig, RunSections
from azq.errors import ConfigError
from azq.nets import NetSpec, Network, build
from azq.nets.network import unpack

FEW, MANY = 4, 36  # leaves of two passes: what both touch, the weights, is in neither's difference
NARROW = 2  # bytes of a number in bfloat16
GAMES = 100  # random ones, whose plies are counted


@dataclass(frozen=True, slots=True)
class Workload:
    """Of one leaf, one game, one network."""

    flops: float  # of a forward pass; a multiplication and its addition are two
    traffic: float  # bytes that the layers read and write one after the other, in bfloat16
    parameters: int
    request_bytes: int
    reply_bytes: int  # at most: logits of all actions
    plies: float  # decisions in a random game


def workload_of(sections: RunSections) -> Workload:
    """Of a run; raises `ConfigError` for a game that the core does not have."""
    if sections.run.game not in games.names():
        raise ConfigError(f"the plan knows azq's own games, and {sections.run.game} is none; `azq bench` measures any")
    game = games.load(sections.run.game, **sections.run.params)
    spec = NetSpec.of(game)
    flops, traffic, parameters = of_network(sections.network, spec)
    reply = NARROW * (spec.num_actions + spec.value_size)
    return Workload(flops, traffic, parameters, spec.packed_size, reply, _plies(game))


@lru_cache(16)
def _counted(network: str, spec: NetSpec) -> tuple[float, float, int]:
    module = build(NetworkConfig.model_validate_json(network), spec, seed=0).eval()
    few, many = (_pass(module, spec, leaves) for leaves in (FEW, MANY))
    flops, touched = ((b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True))
    return flops, NARROW * touched, sum(parameter.numel() for parameter in module.parameters())


def of_network(network: NetworkConfig, spec: NetSpec) -> tuple[float, float, int]:
    """FLOPs and bytes of a leaf, and parameters: counted in two passes, not measured."""
    return _counted(network.model_dump_json(), spec)


class _Touched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the numbers that operations read and write, each as if alone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.numbers += sum(each.numel() for each in tree_leaves((args, kwargs, out)) if isinstance(each, torch.Tensor))
        return out


def _pass(module: Network, spec: NetSpec, leaves: int) -> tuple[int, int]:
    seen = unpack(torch.zeros((leaves, spec.packed_size), dtype=torch.uint8), spec)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*seen)
    with torch.no_grad(), _Touched() as touched:
        module(*seen)
    return counter.get_total_flops(), touched.numbers


def _plies(game: games.Game) -> float:
    luck, plies = random.Random(1), 0
    for _ in range(GAMES):
        state = game.new_initial_state()
        while not state.is_terminal():
            plies += not state.is_chance_node()
            state.apply_action(luck.choice(state.legal_actions()))
    return plies / GAMES
