"""Statistics of a group of games: lengths, results, policies, values against results, versions, openings, symmetry. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.games import Game
from azq.notation.units import unit
from azq.samples.played import SHARED

SHUFFLES = 999


@dataclass(frozen=True, slots=True)
class Spread:
    """How a figure of games is spread."""

    mean: float
    low: float  # a tenth of the games lie below
    median: float
    high: float  # a tenth lie above


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Searched plies whose root values lie near each other."""

    value: float
    result: float
    plies: int


@dataclass(frozen=True, slots=True)
class Symmetry:
    """Whether first moves are as often played as their images under the symmetries that keep the start as it is."""

    symmetries: int
    imbalance: float  # share of the games that would have to begin with an image of their first move
    p_value: float  # that chance alone makes it so large


@dataclass(frozen=True, slots=True)
class SampleStats:
    """A group of games; of figures by game None where none was searched."""

    games: int
    plies: int
    length: Spread
    wins: list[float]  # share of the games that each seat won alone
    shared: float  # share of draws
    entropy: Spread | None  # of a game's mean policy target, nats
    simulations: Spread | None
    value: Spread | None  # a game's mean root value for the player to move
    squared_error: float  # of root values against results, over plies
    calibration: list[CalibrationBin]
    versions: tuple[int, int]
    age: Spread  # of the weights, in versions, when a game was finished
    openings: int  # different ones
    commonest_opening: float  # its share of the games
    duplicates: float  # share of games that repeat another move by move
    score: Spread | None  # of a game for one, in its unit
    symmetry: Symmetry | None  # None where no symmetry keeps the start, or chance begins


def stats(game: Game, rows: NDArray[Any]) -> SampleStats:
    """The figures of at least one game, (G,) of `ROW`."""
    number, values, results = rows["bins"].sum(axis=0, dtype=np.float64)
    count, searched = len(rows), rows["bins"][:, 0].sum(axis=1)
    weighted = np.where(searched > 0, rows["error"], 0.0) @ searched
    winners = np.bincount(rows["winner"] + 1, minlength=game.num_players() + 1) / count
    return SampleStats(
        games=count,
        plies=int(rows["length"].sum()),
        length=_spread(rows["length"]),
        wins=winners[SHARED + 2 :].tolist(),
        shared=float(winners[SHARED + 1]),
        entropy=_searched(rows["entropy"]),
        simulations=_searched(rows["simulations"]),
        value=_searched(rows["value"]),
        squared_error=float(weighted / max(1.0, searched.sum())),
        calibration=[CalibrationBin(values[bin] / plies, results[bin] / plies, int(plies)) for bin, plies in enumerate(number) if plies],
        versions=(int(rows["version"].min()), int(rows["version"].max())),
        age=_spread(rows["age"]),
        openings=len(np.unique(rows["opening"])),
        commonest_opening=float(np.unique(rows["opening"], return_counts=True)[1].max() / count),
        duplicates=1 - len(np.unique(rows["moves"])) / count,
        score=_spread(np.vectorize(unit(game).convert)(rows["result"].astype(np.float64))) if game.num_players() == 1 else None,
        symmetry=_symmetry(game, rows["first"]),
    )


def _spread(figures: NDArray[Any]) -> Spread:
    return Spread(float(figures.mean()), *map(float, np.quantile(figures, (0.1, 0.5, 0.9))))


def _searched(figures: NDArray[Any]) -> Spread | None:
    finite = figures[np.isfinite(figures)]
    return _spread(finite) if len(finite) else None


def _symmetry(game: Game, firsts: NDArray[np.uint16]) -> Symmetry | None:
    """The test draws an image of each game's first move by chance."""
    start = game.new_initial_state()
    if start.is_chance_node():
        return None
    legal = np.flatnonzero(start.legal_actions_mask())
    images = np.stack([game.action_permutation(symmetry) for symmetry in range(game.num_symmetries())])
    images = images[[np.array_equal(np.sort(image[legal]), legal) for image in images]]
    if len(images) < 2:
        return None
    played = np.bincount(firsts, minlength=images.shape[1])
    even = played[images].mean(axis=0)
    rng, drawn = np.random.default_rng(0), np.zeros((SHUFFLES, len(played)))
    for action in np.flatnonzero(played):
        shares = rng.multinomial(played[action], np.full(len(images), 1 / len(images)), SHUFFLES)
        for image, share in zip(images[:, action], shares.T, strict=True):
            drawn[:, image] += share
    imbalance, by_chance = (np.abs(counts - even).sum(axis=-1) / (2 * len(firsts)) for counts in (played, drawn))
    return Symmetry(len(images), float(imbalance), float((1 + (by_chance >= imbalance - 1e-12).sum()) / (1 + SHUFFLES)))


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
        entropy=[_mean_known(part["entropy"]) for part in parts],
        openings=[len(np.unique(part["opening"])) / len(part) for part in parts],
        miscalibration=[_off_by(part["bins"].sum(axis=0, dtype=np.float64)) for part in parts],
        age=[float(part["age"].mean()) for part in parts],
    )


def _mean_known(figures: NDArray[Any]) -> float | None:
    finite = figures[np.isfinite(figures)]
    return float(finite.mean()) if len(finite) else None


def _off_by(bins: NDArray[np.float64]) -> float | None:
    number, values, results = bins
    return float(np.abs(values - results).sum() / number.sum()) if number.sum() else None
