#!/usr/bin/env python3
"""How far honest browsers, and dishonest ones, are from a recomputation: games made with onnxruntime, all plies searched again with torch.

    ops/bench/recompute.py runs/NAME [--games 1000] [--cheat-games 100] > differences.json

The run's folder holds run.toml and at least three published versions of weights. Each cheat is a way to make the same games cheaper or
otherwise than ordered; of each the share of plies is shown that lie outside the bounds of `azq.volunteers.standing`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from azq import _core
from azq.config import InferenceConfig, NetworkConfig, RunSections, parse_run
from azq.inference.device.model import Model
from azq.nets import NetSpec, from_bytes, restore, unpack
from azq.nets.onnx import to_onnx
from azq.nets.weights import describe
from azq.search.recomputation import ChosenPly, Difference, Outputs, differs, recompute
from azq.search.search import exploring, leaves_at_once

SLOTS = 256
FLOAT32 = InferenceConfig(device="cpu", precision="float32", compile=False, threads=1)
QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)


@dataclass(frozen=True)
class Workplace:
    """A run's game, settings and weights, by version."""

    game: _core.Game
    sections: RunSections
    weights: dict[int, bytes]

    @classmethod
    def of(cls, folder: Path) -> Workplace:
        values = tomllib.loads((folder / "run.toml").read_text())
        sections = parse_run({name: values[name] for name in RunSections.model_fields if name in values}, str(folder))
        found = {describe(path).version: path for path in (folder / "weights").glob("*.safetensors")}
        newest = sorted(found)[-3:]
        game = _core.load_game(sections.run.game, sections.run.params)
        return cls(game, sections, {version: found[version].read_bytes() for version in newest})

    def search(self, **changes: Any) -> _core.SearchConfig:
        search = self.sections.search.model_copy(update={"reuse_subtree": False, **changes})
        return exploring(search, random_opening_plies=self.sections.selfplay.random_opening_plies)

    def by_torch(self, version: int) -> Callable[[np.ndarray], Outputs]:
        state, meta = from_bytes(self.weights[version])
        model = Model(NetSpec.of(self.game), NetworkConfig.model_validate(meta.network), FLOAT32)
        model.take(state, meta)
        return model.evaluate

    def by_onnx(self, version: int) -> Callable[[np.ndarray], Outputs]:
        network = restore(self.weights[version], self.game)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(to_onnx(network), options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]

        def evaluate(packed: np.ndarray) -> Outputs:
            parts = dict(zip(("planes", "scalars"), unpack(torch.from_numpy(packed), network.spec), strict=True))
            logits, values = session.run(["logits", "values"], {name: parts[name].float().numpy() for name in names})
            return logits.astype(np.float16), values.astype(np.float16)

        return evaluate


def play(
    place: Workplace, config: _core.SearchConfig, evaluate: Callable[[np.ndarray], Outputs], version: int, games: int
) -> list[_core.Record]:
    """Games as a tab makes them."""
    game, capacity = place.game, SLOTS * leaves_at_once(config, place.game)
    found: list[_core.Record] = []
    search = _core.Search(game, config, num_slots=min(SLOTS, games), seed=place.sections.run.seed)
    packed, slots = np.zeros((capacity, game.packed_size()), np.uint8), np.zeros(capacity, np.int32)
    waiting = iter(range(1, games + 1))
    while len(found) < games:
        for slot in search.finished_slots():
            found.append(search.record(slot))
            search.clear(slot)
        for slot, uid in zip(search.empty_slots(), waiting, strict=False):
            search.start(slot, uid, np.zeros(0, np.uint16))
        if leaves := search.collect(packed, slots):
            search.apply(*evaluate(packed[:leaves]), version)
    return found


def chosen(records: list[_core.Record], budget: int) -> list[ChosenPly]:
    names = ("actions", "policies", "root_values", "simulations", "weight_versions")
    plies = []
    for record in records:
        arrays = {name: getattr(record, name) for name in names}
        plies += [ChosenPly(record.uid, arrays, int(ply), (budget,)) for ply in np.flatnonzero(arrays["simulations"])]
    return plies


def figures(differences: list[Difference]) -> dict[str, Any]:
    policy, value = (np.array([getattr(one, name) for one in differences]) for name in ("policy", "value"))
    as_ordered = [replace(one, simulations=0) for one in differences]  # who says that he spent what was ordered
    return {
        "plies": len(differences),
        "equal": sum(not (one.action or one.policy or one.value) for one in differences) / len(differences),
        "other_action": sum(one.action for one in differences),
        "shows": sum(map(differs, differences)) / len(differences),
        "shows_besides_simulations": sum(map(differs, as_ordered)) / len(differences),
        "policy": dict(zip(map(str, QUANTILES), np.quantile(policy, QUANTILES).round(6).tolist(), strict=True)),
        "value": dict(zip(map(str, QUANTILES), np.quantile(value, QUANTILES).round(6).tolist(), strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--cheat-games", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    place = Workplace.of(given.run)
    oldest, _, newest = sorted(place.weights)
    ordered, seed = place.search(), place.sections.run.seed
    honest, evaluate = place.by_onnx(newest), partial(lambda call, version, packed: call(packed), place.by_torch(newest))
    half = ordered.num_simulations // 2
    zeros = lambda packed: (  # noqa: E731
        np.zeros((len(packed), place.game.num_distinct_actions()), np.float16),
        np.zeros((len(packed), place.game.value_size()), np.float16),
    )
    ways: dict[str, tuple[_core.SearchConfig, Callable[[np.ndarray], Outputs], int]] = {
        "honest": (ordered, honest, given.games),
        "uniform network": (ordered, zeros, given.cheat_games),
        "two versions old": (ordered, place.by_onnx(oldest), given.cheat_games),
        "half the simulations": (place.search(num_simulations=half), honest, given.cheat_games),
        "nine tenths of the simulations": (place.search(num_simulations=ordered.num_simulations * 9 // 10), honest, given.cheat_games),
        "no noise": (place.search(gumbel_scale=0.0, dirichlet_fraction=0.0), honest, given.cheat_games),
    }
    found = {}
    for name, (config, by, games) in ways.items():
        plies = chosen(play(place, config, by, newest, games), ordered.num_simulations)
        differences = recompute(place.game, seed, lambda _: ordered, plies, evaluate)
        found[name] = figures(differences)
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
