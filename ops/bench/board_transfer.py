"""What weights of a small board are worth on a larger one, with flat and with global heads: losses on held-out positions by steps.

`python ops/bench/board_transfer.py OUT.json --game hex --small 5 --large 7`: games of UCT against itself after random openings give
policies (visits) and results. Networks learn those of the small board, then those of the large one, beside networks that begin there.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from azq import _core, games
from azq.config import NetworkConfig
from azq.nets import NetSpec, Network, build, load_into, unpack
from azq.nets.weights import fitting

BATCH = 128
HELD_OUT = 0.25  # of the games

Positions = tuple[Tensor, Tensor, Tensor]  # packed (N, P), visit shares (N, A), results for the player to move (N,)


def played(game: _core.Game, count: int, num_simulations: int, seed: int) -> Positions:
    """The positions of so many games."""
    rng, uct = random.Random(seed), _core.Uct(game, num_simulations=num_simulations, seed=seed)
    rows: list[tuple[Any, Any, float]] = []
    for _ in range(count):
        state, seen = game.new_initial_state(), []
        opening = rng.randrange(7)
        while not state.is_terminal():
            action = uct.best_action(state)
            if len(state.history()) < opening:
                action = rng.choice(state.legal_actions())
            else:
                visits = uct.visit_counts()
                seen.append((state.packed_observation(), visits / visits.sum(), state.current_player()))
            state.apply_action(action)
        rows += [(packed, policy, state.returns()[player]) for packed, policy, player in seen]
    packed, policies, results = (np.array(column) for column in zip(*rows, strict=True))
    return torch.from_numpy(packed), torch.from_numpy(policies).float(), torch.from_numpy(results).float()


def loss_of(network: Network, batch: Positions) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the policy, squared error of the value."""
    packed, policies, results = batch
    logits, values = network(*unpack(packed, network.spec))
    return F.cross_entropy(logits, policies), (values[:, 0] - results).square().mean()


def learned(network: Network, train: Positions, test: Positions, looks: list[int]) -> Iterator[dict[str, float]]:
    """Trains to the last of the steps, and tells the losses on `test` at each of them."""
    optimizer, draw = torch.optim.AdamW(network.parameters(), 2e-3), torch.Generator().manual_seed(0)
    for step in range(looks[-1] + 1):
        if step in looks:
            with torch.inference_mode():
                policy, value = (one.item() for one in loss_of(network, test))
            yield {"step": step, "policy": round(policy, 4), "value": round(value, 4)}
        chosen = torch.randint(len(train[0]), (BATCH,), generator=draw)
        optimizer.zero_grad()
        torch.stack(loss_of(network, tuple(each[chosen] for each in train))).sum().backward()  # type: ignore[arg-type, no-untyped-call]
        optimizer.step()


def main() -> None:
    """Reads the command line, measures and writes."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("out", type=Path)
    options.add_argument("--game", default="hex")
    options.add_argument("--small", type=int, default=5)
    options.add_argument("--large", type=int, default=7)
    options.add_argument("--games", type=int, default=120)
    options.add_argument("--num-simulations", type=int, default=300)
    options.add_argument("--looks", type=int, nargs="+", default=[0, 25, 50, 100, 200, 400])
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    torch.set_num_threads(1)
    rules = {size: games.load(given.game, size=size) for size in (given.small, given.large)}
    sets = {}
    for size, game in rules.items():
        tests = round(HELD_OUT * given.games)
        train, test = (
            played(game, count, given.num_simulations, seed) for seed, count in enumerate((given.games - tests, tests), given.seed)
        )
        sets[size] = train, test
    found: dict[str, Any] = {"positions": {size: [len(part[0]) for part in parts] for size, parts in sets.items()}}
    for heads in ("flat", "global"):
        config = NetworkConfig(blocks=2, channels=32, global_heads=heads == "global")
        begun = time.process_time()
        small = build(config, NetSpec.of(rules[given.small]), seed=1)
        found[f"{heads}, {given.small}"] = list(learned(small, *sets[given.small], given.looks))
        for name, carried in (("carried", True), ("fresh", False)):
            large = build(config, NetSpec.of(rules[given.large]), seed=1)
            if carried:
                own = large.state_dict()
                load_into(large, own | fitting(small.state_dict(), own))
            found[f"{heads}, {given.large} {name}"] = list(learned(large, *sets[given.large], given.looks))
        found[f"{heads}, CPU-seconds"] = round(time.process_time() - begun, 1)
    given.out.write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
