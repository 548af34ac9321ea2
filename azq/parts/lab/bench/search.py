"""The speed of the search's core alone (200 simulations a ply, one thread), in few trees and in many."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import numpy as np

from azq import _core, games
from azq.config import Config
from azq.search.search import exploring, leaves_at_once

SIMULATIONS = 200
TREES = 256
CHUNK = 200_000
MANY_TREES = 8_192  # a request for a GPU; hundreds of megabytes, so that every step waits for memory that is not in a cache
OPENING_PLIES = 12  # so that not all trees are at one ply


def bench_search(config: Config, *, seconds: float, game: str) -> dict[str, Any]:
    """Simulations per CPU-second of PUCT and Gumbel with the core's own evaluator, and CPU of a leaf with one from outside.

    The run's other search settings as they are.
    """
    figures = {algorithm: rate(config, game, algorithm, seconds / 2) for algorithm in ("puct", "gumbel")}
    chosen = config.search.algorithm
    return {
        "game": game,
        "num_simulations": SIMULATIONS,
        "algorithm": chosen,
        "simulations_per_cpu_s": figures[chosen],
        **{f"simulations_per_cpu_s_{name}": rate for name, rate in figures.items()},
        **{f"us_per_leaf_{trees}_trees": round(_leaf_s(config, game, trees, seconds / 2) * 1e6, 3) for trees in (TREES, MANY_TREES)},
    }


def _leaf_s(config: Config, game: str, trees: int, seconds: float) -> float:
    """CPU-seconds of a leaf: every tree steps to its next one and is given random numbers for it, in turn."""
    rules = games.load(game)
    settings = exploring(config.search.model_copy(update={"num_simulations": SIMULATIONS}), random_opening_plies=OPENING_PLIES)
    search = _core.Search(rules, settings, num_slots=trees, seed=1)
    capacity = trees * leaves_at_once(settings, rules)
    packed, slots = np.zeros((capacity, rules.packed_size()), np.uint8), np.zeros(capacity, np.int32)
    dice, uids = np.random.default_rng(0), count(1)
    logits = dice.normal(0.0, 1.0, (capacity, rules.num_distinct_actions())).astype(np.float16)
    values = dice.uniform(-0.5, 0.5, (capacity, rules.value_size())).astype(np.float16)
    leaves = turn = 0
    begun = spent = 0.0
    while spent < seconds:
        for slot in (*search.finished_slots(), *search.empty_slots()):
            search.clear(slot)
            search.start(slot, next(uids), np.zeros(0, np.uint16))
        if turn == SIMULATIONS + OPENING_PLIES:  # every tree has had its memory from the system
            leaves, begun = 0, time.process_time()
        turn += 1
        collected = search.collect(packed, slots)
        search.apply(logits[:collected], values[:collected])
        leaves += collected
        spent = time.process_time() - begun if begun else 0.0
    return spent / leaves


def rate(config: Config, game: str, algorithm: str, seconds: float) -> float:
    """Simulations per CPU-second with the core's own evaluator."""
    settings = config.search.model_copy(update={"algorithm": algorithm, "num_simulations": SIMULATIONS})
    search = _core.Search(games.load(game), exploring(settings), num_slots=TREES, seed=1)
    search.run_uniform(CHUNK)
    done, begun = 0, time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        done += search.run_uniform(CHUNK)
    return done / spent
