"""Whether two groups of games are of one kind: a permutation test a figure, over whole games, since the plies of one are not independent.

Letters: N games of both groups, B permutations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = ("length", "entropy", "simulations", "value", "error")
CLASSES = ("winner", "opening")
TOLD_APART = 16  # the commonest classes; the others are one, since many rare ones hide what is there
MOST_GAMES = 5_000  # of a group; the newest
PERMUTATIONS = 1_999
AT_ONCE = 50  # permutations that share numpy's calls
ALPHA = 0.01
COARSE = 0.25  # where only larger distances would be noticed, there is nothing to tell
AGREES, DIFFERS, TOO_FEW = "agrees", "differs", "too few games"


@dataclass(frozen=True, slots=True)
class Comparison:
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
    figures: list[Comparison]
    verdict: str  # `differs` where one does


def diff(first: NDArray[Any], second: NDArray[Any], *, match_versions: bool, seed: int = 0) -> SamplesDiff:
    """Compares games, rows of `ROW`; with `match_versions` only those of versions that both have, permuted within each version.

    So another mix of versions is no difference.
    """
    kept = [first, second]
    if match_versions:
        common = np.intersect1d(first["version"], second["version"])
        kept = [rows[np.isin(rows["version"], common)] for rows in kept]
    kept = [rows[-MOST_GAMES:] for rows in kept]
    sizes, left_out = (len(kept[0]), len(kept[1])), (len(first) - len(kept[0]), len(second) - len(kept[1]))
    if not min(sizes):
        return SamplesDiff(sizes, left_out, [], TOO_FEW)
    rows = np.concatenate(kept)
    labels = _labels(rows["version"] if match_versions else np.zeros(len(rows)), sizes[0], np.random.default_rng(seed))
    distances = {name: _distances(rows[name], labels, name in CLASSES) for name in NUMBERS + CLASSES}
    # Equal sums in another order differ by a rounding.
    p_values = {name: float((found >= found[0] - 1e-9).mean()) for name, found in distances.items()}
    corrected = holm(p_values)
    figures = []
    for name, found in distances.items():
        noticed = float(np.quantile(found[1:], 1 - ALPHA / len(distances)))
        verdict = DIFFERS if corrected[name] < ALPHA else TOO_FEW if noticed > COARSE else AGREES
        of_first, of_second = (_told(rows[name], part[name], name in CLASSES) for part in kept)
        figures.append(Comparison(name, of_first, of_second, float(found[0]), noticed, p_values[name], corrected[name], verdict))
    verdicts = {figure.verdict for figure in figures}
    return SamplesDiff(sizes, left_out, figures, next(each for each in (DIFFERS, TOO_FEW, AGREES) if each in verdicts))


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """p-values that bear being asked together: the chance of any false alarm among them stays what one's was."""
    corrected, least = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = least
    return corrected


def _labels(strata: NDArray[Any], first: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(1 + B, N) who belongs to the first group: as it is, then shuffled among games of one stratum."""
    own = np.arange(len(strata)) < first
    order = np.argsort(strata, kind="stable")
    labels = np.empty((1 + PERMUTATIONS, len(strata)), np.bool_)
    labels[0] = own
    for each in labels[1:]:
        each[order] = own[np.lexsort((rng.random(len(strata)), strata))]
    return labels


def _distances(figures: NDArray[Any], labels: NDArray[np.bool_], classes: bool) -> NDArray[np.float64]:
    """(1 + B,) between the two groups, for each labelling."""
    of = np.unique(figures, return_inverse=True)[1]  # NaNs are one class, the last
    if classes:
        rank = np.argsort(np.argsort(-np.bincount(of), kind="stable"), kind="stable")
        of = np.minimum(rank, TOLD_APART)[of]
    every = np.bincount(of)
    size, first = len(figures), int(labels[0].sum())
    found = []
    for start in range(0, len(labels), AT_ONCE):
        part = labels[start : start + AT_ONCE]
        flat = (of + len(every) * np.arange(len(part))[:, None])[part]
        counts = np.bincount(flat, minlength=len(part) * len(every)).reshape(len(part), -1)
        apart = counts / first - (every - counts) / (size - first)
        found.append(np.abs(apart).sum(axis=1) / 2 if classes else np.abs(apart.cumsum(axis=1)).max(axis=1))
    return np.concatenate(found)


def _told(both: NDArray[Any], part: NDArray[Any], classes: bool) -> float:
    if not classes:
        return float(np.nanmean(part)) if np.isfinite(part).any() else 0.0
    values, counts = np.unique(both, return_counts=True)
    return float((part == values[counts.argmax()]).mean())
