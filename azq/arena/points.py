"""In which unit a game's results and losses are told: backgammon in points, Blob in points a round. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from azq import _core

BACKGAMMON_SCALE = {"full": 3.0, "gammons": 2.0, "winloss": 1.0}  # points of a return of 1
BLOB_BONUS = 10  # a Blob score is at most 10 + cards
MILLI = 1000.0
OUTCOME_NAMES = {"backgammon": ("win", "win_gammon", "win_backgammon", "lose_gammon", "lose_backgammon")}  # "gammon": or better


@dataclass(frozen=True, slots=True)
class Unit:
    """One result unit a game: `scale` of it to a return of 1, losses in `loss_name`, `loss_scale` of it to a graded value of 1."""

    name: str = "result"
    scale: float = 1.0
    loss_name: str = "value"
    loss_scale: float = 1.0


def unit(game: _core.Game) -> Unit:
    """The unit of a game with its parameters."""
    if game.name == "backgammon":
        return Unit("points", BACKGAMMON_SCALE.get(str(game.params.get("scoring", "full")), 1.0), "millipoints", MILLI)
    if game.name == "blob":
        return _blob(game.params)
    return Unit()


def _blob(params: Mapping[str, Any]) -> Unit:
    """A round scored by exact bids is worth at most 10 + cards; other forms stay in the game's own scale."""
    cards = params.get("cards")
    plain = params.get("scoring", "exact") == "exact" and params.get("returns", "own") == "own" and params.get("mode", "round") == "round"
    return Unit("points", float(BLOB_BONUS + cards)) if plain and isinstance(cards, int) else Unit()


def mean_and_error(points: Sequence[float], group: int) -> tuple[float, float]:
    """Mean of the points and its standard error, from the means of consecutive groups of games that share their luck.

    The error is 0 where there are fewer than two groups: nothing is known of it then.
    """
    means = [sum(points[start : start + group]) / group for start in range(0, len(points), group)]
    count = len(means)
    mean = sum(means) / count
    if count < 2:
        return mean, 0.0
    return mean, math.sqrt(sum((value - mean) ** 2 for value in means) / (count - 1) / count)


def outcome_names(game: str, count: int) -> tuple[str, ...]:
    """What the outcomes of a game are called."""
    names = OUTCOME_NAMES.get(game, ())
    return names if len(names) == count else tuple(f"outcome_{number}" for number in range(count))
