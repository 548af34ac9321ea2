"""The search: the speed of its core alone (uniform evaluator, 200 simulations a ply, one thread), and its strength with a network."""

from __future__ import annotations

import time
from typing import Any

from azq import _core, games
from azq.arena.grade import mark
from azq.arena.positions import load
from azq.config import Config
from azq.console.move import open_player
from azq.search.search import exploring

SIMULATIONS = 200
TREES = 256
CHUNK = 200_000
GRADED = "connect_four"  # its positions are exactly solved


def bench_search(config: Config, *, seconds: float, game: str) -> dict[str, Any]:
    """Simulations per CPU-second of PUCT and Gumbel, the run's other search settings as they are."""
    figures = {algorithm: _rate(config, game, algorithm, seconds / 2) for algorithm in ("puct", "gumbel")}
    chosen = config.search.algorithm
    return {
        "game": game,
        "num_simulations": SIMULATIONS,
        "algorithm": chosen,
        "simulations_per_cpu_s": figures[chosen],
        **{f"simulations_per_cpu_s_{name}": rate for name, rate in figures.items()},
    }


def bench_strength(config: Config, *, run: str | None, weights: str, num_simulations: int) -> dict[str, Any]:
    """Share of the graded positions on which the move played loses a result class, overall and by class."""
    player = open_player(config, game=GRADED, run=run, weights=weights, num_simulations=num_simulations)
    positions = load(GRADED)
    answers = player.moves([list(position.actions) for position in positions])
    grade = mark(positions, [answer["action"] for answer in answers])
    return {
        "weight_version": player.weight_version,
        "num_simulations": num_simulations,
        "positions": grade.positions,
        "errors": grade.errors,
        "error_share": round(grade.error_share, 4),
        **{f"errors_{name}": f"{errors}/{count}" for name, (errors, count) in sorted(grade.by_class.items())},
    }


def _rate(config: Config, game: str, algorithm: str, seconds: float) -> float:
    settings = config.search.model_copy(update={"algorithm": algorithm, "num_simulations": SIMULATIONS})
    search = _core.Search(games.load(game), exploring(settings), num_slots=TREES, seed=1)
    search.run_uniform(CHUNK)
    done, begun = 0, time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        done += search.run_uniform(CHUNK)
    return done / spent
