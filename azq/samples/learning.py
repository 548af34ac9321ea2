"""How a run's games change while it learns: their figures block by block, oldest first. Pure.

Letters: G games, K blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.samples.played import SHARED

FEWEST = 20  # games of a block


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """(K,) each; None where no ply of a block was searched."""

    game: list[int]  # number of games until the block's end, of those looked at
    version: list[float]  # of the weights, mean
    draws: list[float]  # share of games without a single winner
    first: list[float]  # share that the first player won
    length: list[float]  # plies
    entropy: list[float | None]  # of policy targets, nats
    openings: list[float]  # different ones, as a share of the games
    miscalibration: list[float | None]  # mean distance of root values and results, over bins of values
    age: list[float]  # of the weights when a game was finished, in versions


def learning_curves(rows: NDArray[Any], blocks: int) -> LearningCurves:
    """The figures of games, (G,) of `ROW`, in at most so many blocks of equal size."""
    parts = np.array_split(rows, max(1, min(blocks, len(rows) // FEWEST)))
    return LearningCurves(
        game=np.cumsum([len(part) for part in parts]).tolist(),
        version=[float(part["version"].mean()) for part in parts],
        draws=[float((part["winner"] == SHARED).mean()) for part in parts],
        first=[float((part["winner"] == 0).mean()) for part in parts],
        length=[float(part["length"].mean()) for part in parts],
        entropy=[_mean(part["entropy"]) for part in parts],
        openings=[len(np.unique(part["opening"])) / len(part) for part in parts],
        miscalibration=[_miscalibration(part["bins"].sum(axis=0, dtype=np.float64)) for part in parts],
        age=[float(part["age"].mean()) for part in parts],
    )


def _mean(figures: NDArray[Any]) -> float | None:
    known = figures[np.isfinite(figures)]
    return float(known.mean()) if len(known) else None


def _miscalibration(bins: NDArray[np.float64]) -> float | None:
    number, values, results = bins
    return float(np.abs(values - results).sum() / number.sum()) if number.sum() else None
