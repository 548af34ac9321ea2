"""One set of weights in two precisions on this machine: evaluations per CPU-second in one run, how far answers differ, a match.

Usage: precisions.py WEIGHTS [--param size=7] [--precisions int8 bfloat16] [--games N] [--num-simulations N] [--opening-plies N] [--json]
The game and the network are those the weights name. Positions are those of random games. The match is between the first and the
second precision at equal simulations, in pairs with swapped colours; a speed that it does not cost strength to have is free.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from azq import games
from azq.arena.match import play_match, random_opening
from azq.arena.player import Ground
from azq.arena.players import NetworkPlayer
from azq.arena.rating import Z95
from azq.config import InferenceConfig, SearchConfig
from azq.inference.ask.local import LocalEvaluator
from azq.inference.device.model import Model
from azq.nets import NetSpec, from_bytes, network_of
from azq.nets.device import prepare_process
from azq.wire.messages import MatchSpec

BATCH, ROUNDS, REPEATS = 512, 7, 4
PLIES = 24  # of the random games whose positions are evaluated
MATCH_THREADS = 1


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--precisions", nargs=2, default=["int8", "bfloat16"], metavar="PRECISION")
    parser.add_argument("--param", action="append", default=[], metavar="KEY=NUMBER", help="of the game; may be repeated")
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--num-simulations", type=int, default=64)
    parser.add_argument("--opening-plies", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    data = args.weights.read_bytes()
    params = {key: int(value) for key, _, value in (param.partition("=") for param in args.param)}
    game = games.GameFiles().load(from_bytes(data)[1].game, params)
    configs = {name: InferenceConfig(device="cpu", precision=name, threads=MATCH_THREADS) for name in args.precisions}
    found = {"weights": args.weights.name, "game": game.name, "forward": forwards(game, data, configs, args.seed)}
    if args.games:
        found["match"] = match(game, data, configs, args)
    print(json.dumps(found) if args.json else told(found))


def forwards(game: games.Game, data: bytes, configs: dict[str, InferenceConfig], seed: int) -> dict[str, Any]:
    """Speed and distance from float32, in turns; medians. Priors differ by total variation, values by their absolute difference."""
    prepare_process(MATCH_THREADS)
    packed = positions(game, BATCH, np.random.default_rng(seed))
    models = {name: _model(game, data, config) for name, config in configs.items()}
    exact = _outputs(_model(game, data, InferenceConfig(device="cpu", precision="float32", threads=MATCH_THREADS)), packed)
    rates: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            began_s = time.process_time()
            for _ in range(REPEATS):
                model.evaluate(packed)
            rates[name].append(REPEATS * BATCH / (time.process_time() - began_s))
    rows = {}
    for name, model in models.items():
        priors, values = _outputs(model, packed)
        rows[name] = {
            "evaluations_per_cpu_s": round(float(np.median(rates[name]))),
            "prior_distance": float(np.abs(priors - exact[0]).sum(1).mean() / 2),
            "value_distance": float(np.abs(values - exact[1]).mean()),
            "same_best_move": float((priors.argmax(1) == exact[0].argmax(1)).mean()),
            "runs_as": str(model.rung),
        }
    return rows


def positions(game: games.Game, count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Packed observations of random games, of all lengths up to `PLIES`."""
    line = random.Random(int(rng.integers(2**31)))
    packed = np.zeros((count, game.packed_size()), np.uint8)
    for row in packed:
        state = game.new_initial_state()
        for action in random_opening(game, line.randrange(PLIES), line):
            state.apply_action(action)
        row[:] = state.packed_observation()
    return packed


def match(game: games.Game, data: bytes, configs: dict[str, InferenceConfig], args: argparse.Namespace) -> dict[str, Any]:
    """The first precision against the second."""
    version = from_bytes(data)[1].version
    evaluators = [LocalEvaluator.from_bytes(game, data, config) for config in configs.values()]
    grounds = [Ground(game, evaluator, SearchConfig(), args.num_simulations, seed=args.seed) for evaluator in evaluators]
    first, second = configs
    spec = MatchSpec(first, second, args.games, args.num_simulations, args.opening_plies, args.seed)
    result = play_match(spec, game, *(NetworkPlayer((version,), ground) for ground in grounds))
    for evaluator in evaluators:
        evaluator.close()
    variance = (result.wins + result.draws / 4) / result.games - result.share**2
    return {
        "wins": result.wins,
        "draws": result.draws,
        "losses": result.losses,
        "score": round(result.share, 4),
        "plus_minus": round(Z95 * math.sqrt(variance / result.games), 4),
        "num_simulations": args.num_simulations,
    }


def told(found: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [f"{found['weights']} ({found['game']}), batch {BATCH}, one thread"]
    lines += [
        f"  {name:9} {row['evaluations_per_cpu_s']:>9,} evaluations/CPU-s, priors {row['prior_distance']:.4f} and values "
        f"{row['value_distance']:.4f} from float32, same best move {row['same_best_move']:.1%} ({row['runs_as']})"
        for name, row in found["forward"].items()
    ]
    if "match" in found:
        row = found["match"]
        first, second = found["forward"]
        lines.append(
            f"  {first} against {second} at {row['num_simulations']} simulations: +{row['wins']} ={row['draws']} -{row['losses']}, "
            f"score {row['score']:.1%} +-{row['plus_minus']:.1%}"
        )
    return "\n".join(lines)


def _model(game: games.Game, data: bytes, config: InferenceConfig) -> Model:
    model = Model(NetSpec.of(game), network_of(from_bytes(data)[1]), config)
    model.load(data)
    return model


def _outputs(model: Model, packed: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    logits, values = model.evaluate(packed)
    return torch.softmax(torch.from_numpy(logits).float(), 1).numpy(), values.astype(np.float32)


if __name__ == "__main__":
    main()
