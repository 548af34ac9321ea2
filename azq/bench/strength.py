"""Strength on exactly solved positions."""

from __future__ import annotations

from typing import Any

from azq.arena.grade import mark
from azq.arena.positions import load
from azq.config import Config
from azq.console.move import open_player

GAME = "connect_four"


def bench_strength(config: Config, *, run: str | None, weights: str, num_simulations: int) -> dict[str, Any]:
    """Share of the graded positions on which the move played loses a result class, overall and by class."""
    player = open_player(config, game=GAME, run=run, weights=weights, num_simulations=num_simulations)
    positions = load(GAME)
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
