"""What a switch of the search costs and changes: round trips and evaluations of a move, and errors on connect four's graded positions.

    python ops/bench/search_setting.py batch_root|decisive_moves WEIGHTS [--simulations 64] [--positions 600]

Each algorithm without it, with it, and, where that asks for more or fewer evaluations, without it with as many.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from azq import games
from azq.arena.grade import mark
from azq.arena.positions import Position, load
from azq.config import InferenceConfig, SearchConfig
from azq.inference.ask.local import LocalEvaluator
from azq.search.search import leaves_at_once, make_search, strongest

GAME = "connect_four"


@dataclass(frozen=True)
class Moves:
    """What a search plays in each position, and what that took of a move."""

    actions: Sequence[int]
    steps: float
    evaluations: float
    cpu_ms: float


def moved(evaluator: LocalEvaluator, search: SearchConfig, positions: Sequence[Position]) -> Moves:
    """One search in each position, all in step; a step of a game is a round trip."""
    game = games.load(GAME)
    config = strongest(search, search.num_simulations)
    many = make_search(game, config, num_slots=len(positions), seed=0, autoplay=False)
    for slot, position in enumerate(positions):
        many.start(slot, slot + 1, np.array(position.actions, np.uint16))
    capacity = len(positions) * leaves_at_once(config, game)
    packed, slots = np.zeros((capacity, game.packed_size()), np.uint8), np.zeros(capacity, np.int32)
    steps = evaluations = 0
    began_s = time.process_time()
    while leaves := many.collect(packed, slots):
        answer = evaluator.result(evaluator.submit(packed[:leaves]), timeout_s=600.0)
        assert answer is not None
        many.apply(answer.logits, answer.values, answer.weight_version)
        steps += len(set(slots[:leaves].tolist()))
        evaluations += leaves
    spent_s, count = time.process_time() - began_s, len(positions)
    return Moves([many.result(slot).best_action for slot in range(count)], steps / count, evaluations / count, 1000 * spent_s / count)


def told(name: str, found: Moves, positions: Sequence[Position], plain: Moves) -> str:
    """A row of the table."""
    grade = mark(positions, list(found.actions))
    same = sum(ours == theirs for ours, theirs in zip(found.actions, plain.actions, strict=True))
    share = f"{grade.errors} of {grade.positions}"
    return f"| {name} | {found.steps:.1f} | {found.evaluations:.1f} | {share} | {same} of {len(positions)} | {found.cpu_ms:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting", choices=("batch_root", "decisive_moves"))
    parser.add_argument("weights", type=Path)
    parser.add_argument("--simulations", type=int, default=64)
    parser.add_argument("--positions", type=int, default=600)
    asked = parser.parse_args()
    positions = load(GAME)[: asked.positions]
    evaluator = LocalEvaluator.from_file(games.load(GAME), asked.weights, InferenceConfig(device="cpu", threads=1))
    print("| search | steps a move | evaluations a move | errors | same move | CPU ms |\n|---|---|---|---|---|---|")
    for algorithm in ("gumbel", "puct"):
        search = SearchConfig(algorithm=algorithm, num_simulations=asked.simulations, gumbel_scale=0.0, dirichlet_fraction=0.0)
        plain = moved(evaluator, search, positions)
        switched = moved(evaluator, search.model_copy(update={asked.setting: True}), positions)
        rows = {f"{algorithm}, {asked.simulations} simulations": plain, f"{algorithm}, {asked.setting}": switched}
        alike = round(asked.simulations * switched.evaluations / plain.evaluations)
        if alike != asked.simulations:
            rows[f"{algorithm}, {alike} simulations"] = moved(evaluator, search.model_copy(update={"num_simulations": alike}), positions)
        for name, found in rows.items():
            print(told(name, found, positions, plain), flush=True)


if __name__ == "__main__":
    main()
