"""The speed of the search's core alone: 200 simulations a ply, one thread."""

from __future__ import annotations

import time
from typing import Any

from azq import _core, games
from azq.config import Config
from azq.search.search import exploring

SIMULATIONS = 200
TREES = 256
CHUNK = 200_000


def bench_search(config: Config, *, seconds: float, game: str) -> dict[str, Any]:
    """Simulations per CPU-second of PUCT and Gumbel with the core's own evaluator; the run's other search settings as they are."""
    figures = {algorithm: rate(config, game, algorithm, seconds / 2) for algorithm in ("puct", "gumbel")}
    chosen = config.search.algorithm
    return {
        "game": game,
        "num_simulations": SIMULATIONS,
        "algorithm": chosen,
        "simulations_per_cpu_s": figures[chosen],
        **{f"simulations_per_cpu_s_{name}": rate for name, rate in figures.items()},
    }


def rate(config: Config, game: str, algorithm: str, seconds: float) -> float:
    """Simulations per CPU-second with the core's own evaluator."""
    settings = config.search.model_copy(update={"algorithm": algorithm, "num_simulations": SIMULATIONS})
    search = _core.Search(games.load(game), exploring(settings), num_slots=TREES, seed=1)
    search.run_uniform(CHUNK)
    done, begun = 0, time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        done += search.run_uniform(CHUNK)
    return done / spent
