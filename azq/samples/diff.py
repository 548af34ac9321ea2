"""Whether two groups of games are of one kind: a permutation test a figure, over whole games, since the plies of one are not independent.

Letters: N games of both groups, B permutations.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.stats import holm

NUMBERS = ("length", "entropy", "simulations", "value", "error")
CLASSES = ("winner", "opening")
TOLD_APART = 16  # the commonest classes; the others are one, since many rare ones hide what is there
MOST_GAMES = 5_000  # of a group; the newest
PERMUTATIONS = 1_999
EDGES = 4  # of so many versions in common or fewer all are compared
AT_ONCE = 50  # permutations that share numpy's calls
ALPHA = 0.01
COARSE = 0.25  # where only larger distances would be noticed, there is no verdict
AGREES, DIFFERS, TOO_FEW = "agrees", "differs", "too few games"


@dataclass(frozen=True, slots=True)
class FigureDiff:
    """A figure in two groups of games."""

    figure: str
    first: float  # mean; of classes the share of the commonest of both groups
    second: float
    distance: float  # 0..1: the largest between distribution functions (Kolmogorov and Smirnov's); of classes total variation
    noticed_from: float  # a smaller distance would be put down to chance
    p_value: float
    corrected: float  # p-value, for so many figures at once (Holm 1979)
    verdict: str


@dataclass(frozen=True, slots=True)
class SamplesDiff:
    """Two groups of games side by side."""

    games: tuple[int, int]  # compared
    left_out: tuple[int, int]  # made with weight versions that only one has, or older than the newest that are compared
    figures: list[FigureDiff]
    verdict: str  # `differs` where one does


def diff(first: NDArray[Any], second: NDArray[Any], *, match_versions: bool, seed: int = 0) -> SamplesDiff:
    """Compares games, rows of `ROW`; with `match_versions` only those of versions that both have.

    They are permuted within a version, and each version has one weight in both groups, so another mix of versions is no difference.
    """
    compared = [first, second]
    if match_versions:
        common = np.intersect1d(first["version"], second["version"])
        # The first and last versions have the short ones of the games that began before and ended after, more so of who plays slowly.
        common = common[1:-1] if len(common) > EDGES else common
        compared = [rows[np.isin(rows["version"], common)] for rows in compared]
    compared = [rows[-MOST_GAMES:] for rows in compared]
    sizes, left_out = (len(compared[0]), len(compared[1])), (len(first) - len(compared[0]), len(second) - len(compared[1]))
    if not min(sizes):
        return SamplesDiff(sizes, left_out, [], TOO_FEW)
    rows = np.concatenate(compared)
    strata = np.unique(rows["version"] if match_versions else np.zeros(len(rows)), return_inverse=True)[1]
    labels, weights = _labels(strata, sizes[0], np.random.default_rng(seed)), _weights(strata, sizes[0])
    distances = {name: _distances(rows[name], labels, weights, name in CLASSES) for name in NUMBERS + CLASSES}
    # Equal sums in another order differ by a rounding.
    p_values = {name: float((distance >= distance[0] - 1e-9).mean()) for name, distance in distances.items()}
    corrected = holm(p_values)
    figures = []
    for name, distance in distances.items():
        noticed = float(np.quantile(distance[1:], 1 - ALPHA / len(distances)))
        verdict = DIFFERS if corrected[name] < ALPHA else TOO_FEW if noticed > COARSE else AGREES
        of_first, of_second = (_summary(rows[name], np.where(labels[0] == own, weights[own], 0.0), name in CLASSES) for own in (1, 0))
        figures.append(FigureDiff(name, of_first, of_second, float(distance[0]), noticed, p_values[name], corrected[name], verdict))
    verdicts = {figure.verdict for figure in figures}
    return SamplesDiff(sizes, left_out, figures, next(verdict for verdict in (DIFFERS, TOO_FEW, AGREES) if verdict in verdicts))


@dataclass(frozen=True, slots=True)
class OutcomeGap:
    """Seat 0's mean result in one group of games less that in another, with a 95 % interval."""

    games: tuple[int, int]  # of versions that both have
    gap: float
    low: float
    high: float


def outcome_gap(first: NDArray[Any], second: NDArray[Any]) -> OutcomeGap | None:
    """Compares results of games, rows of `ROW`, version by version, each weighing as its games of the first group; None: none in common."""
    common = np.intersect1d(first["version"], second["version"])
    mine, others = first[np.isin(first["version"], common)], second[np.isin(second["version"], common)]
    if not len(common):
        return None
    gap = variance = 0.0
    spread = float(np.concatenate([mine, others])["result"].var())
    for version in common:
        some, rest = mine[mine["version"] == version]["result"], others[others["version"] == version]["result"]
        gap += len(some) * float(some.mean() - rest.mean()) / len(mine)
        variance += (len(some) / len(mine)) ** 2 * spread * (1 / len(some) + 1 / len(rest))
    half = float(NormalDist().inv_cdf(0.975) * np.sqrt(variance))
    return OutcomeGap((len(mine), len(others)), gap, gap - half, gap + half)


def _labels(strata: NDArray[Any], first: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(1 + B, N) who belongs to the first group: as it is, then shuffled among games of one stratum."""
    own = np.arange(len(strata)) < first
    order = np.argsort(strata, kind="stable")
    labels = np.empty((1 + PERMUTATIONS, len(strata)), np.bool_)
    labels[0] = own
    for labelling in labels[1:]:
        labelling[order] = own[np.lexsort((rng.random(len(strata)), strata))]
    return labels


def _weights(strata: NDArray[np.intp], first: int) -> NDArray[np.float64]:
    """(2, N) what a game counts in the second and in the first group: each stratum has one share of both (Mantel and Haenszel's)."""
    every, of_first = np.bincount(strata), np.bincount(strata[:first], minlength=strata.max() + 1)
    shares = np.stack([of_first, every - of_first]) / every
    weights: NDArray[np.float64] = (shares / (shares[0] * shares[1] * every).sum())[:, strata]
    return weights


def _distances(figures: NDArray[Any], labels: NDArray[np.bool_], weights: NDArray[np.float64], classes: bool) -> NDArray[np.float64]:
    """(1 + B,) between the two groups, for each labelling."""
    of = np.unique(figures, return_inverse=True)[1]  # NaNs are one class, the last
    if classes:
        rank = np.argsort(np.argsort(-np.bincount(of), kind="stable"), kind="stable")
        of = np.minimum(rank, TOLD_APART)[of]
    width, distances = of.max() + 1, []
    for start in range(0, len(labels), AT_ONCE):
        part = labels[start : start + AT_ONCE]
        flat = of + width * np.arange(len(part))[:, None]
        apart = np.bincount(flat.ravel(), np.where(part, weights[1], -weights[0]).ravel(), len(part) * width).reshape(len(part), -1)
        distances.append(np.abs(apart).sum(axis=1) / 2 if classes else np.abs(apart.cumsum(axis=1)).max(axis=1))
    return np.concatenate(distances)


def _summary(figures: NDArray[Any], weights: NDArray[np.float64], classes: bool) -> float:
    """A mean, or the share of the commonest class."""
    if classes:
        values, counts = np.unique(figures, return_counts=True)
        return float(weights @ (figures == values[counts.argmax()]))
    finite = np.isfinite(figures)
    return float(weights[finite] @ figures[finite] / max(1e-12, weights[finite].sum()))
