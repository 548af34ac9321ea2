"""Scores of games for one player as values in [-1, 1] and back, by the scale that a game declares; the core's is `azq/score.hpp`. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

ScoreScale = tuple[float, float, float]  # lowest, highest, step: above 0, scores count by log(1 + (score - lowest) / step)


def value_of(score: float, scale: ScoreScale) -> float:
    """In [-1, 1] for a score between the lowest and the highest."""
    low, high, step = scale
    share = math.log1p((score - low) / step) / math.log1p((high - low) / step) if step else (score - low) / (high - low)
    return max(-1.0, min(1.0, 2.0 * share - 1.0))


def score_of(value: float, scale: ScoreScale) -> float:
    """The score of a value; of a mean of values under a step, the score that is worth as much, not the mean of scores."""
    low, high, step = scale
    share = (value + 1.0) / 2.0
    return low + (step * math.expm1(share * math.log1p((high - low) / step)) if step else share * (high - low))


def read_scale(given: Sequence[float], players: int) -> ScoreScale:
    """What a game in Python says of its scores, `(lowest, highest)` or with a step; raises `ValueError` naming what is wrong with it."""
    numbers = [float(number) for number in given]
    if len(numbers) not in (2, 3) or not all(map(math.isfinite, numbers)):
        raise ValueError("write (lowest, highest) or (lowest, highest, step)")
    low, high, step = (*numbers, 0.0)[:3]
    if low >= high or step < 0:
        raise ValueError("the lowest score comes first, then the highest, and a step is not negative")
    if players != 1:
        raise ValueError(f"scores are those of one player, and it has {players}")
    return low, high, step
