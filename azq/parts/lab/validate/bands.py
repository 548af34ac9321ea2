"""How strong a game's preset is after so many steps, over seeds, and whether other seeds lie within that band. Pure.

Runs are compared by the loss of their bare policies: on graded positions where the game has them, else the share of points that a fixed
opponent takes. Both are strongest at 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

ALPHA = 0.01  # how often a sound program is called slower or faster at any point
MOST_DEALS = 20_000  # that are looked at; all of them, where there are no more
LEAST_SEEDS = 4  # of which the fastest and the slowest are dropped; of three no difference is rare enough

Verdict = Literal["slower", "faster", "within"]


class BandPoint(msgspec.Struct, frozen=True):
    """How a run stood when so many steps were learned."""

    step: int
    games: int
    loss: float
    errors: float | None  # share of graded moves that lose a result class; None where the game has none
    cpu_s: float  # of self-play and training until here
    hash: str  # of the weights


class SeedCurve(msgspec.Struct, frozen=True):
    """One seed's run."""

    seed: int
    points: list[BandPoint]


class Band(msgspec.Struct, frozen=True):
    """The curves of seeds, and all that has to be the same in a run that is compared with them."""

    game: str
    metric: str
    settings: str  # fingerprint
    machine: str
    commit: str
    program: str  # fingerprint of azq's files
    curves: list[SeedCurve]

    @property
    def file_name(self) -> str:
        """Of its file in a folder of bands."""
        return f"{re.sub('[^A-Za-z0-9_.-]+', '-', self.game)}.json"

    def having(self, curves: Sequence[SeedCurve]) -> Band:
        """The same of these seeds."""
        return msgspec.structs.replace(self, curves=sorted(curves, key=lambda curve: curve.seed))


@dataclass(frozen=True, slots=True)
class BandVerdict:
    """One point: losses as means over seeds without the fastest and the slowest."""

    step: int
    band: float
    found: float
    p: float  # of a difference as large at any point by chance
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class BandSpread:
    """What a band looks like at a point, for tables and charts."""

    step: int
    mean: float
    low: float
    high: float


def losses_of(curves: Sequence[SeedCurve]) -> NDArray[np.float64]:
    """(S, P): a row a seed, a column a point."""
    return np.array([[point.loss for point in curve.points] for curve in curves], np.float64)


def spread(curves: Sequence[SeedCurve]) -> list[BandSpread]:
    """Mean, least and most of the curves at each point, the fastest and the slowest run dropped."""
    losses = losses_of(curves)
    trimmed = losses[_by_speed(losses)][1:-1]
    columns = (trimmed.mean(0).tolist(), trimmed.min(0).tolist(), trimmed.max(0).tolist())
    return [BandSpread(point.step, *row) for point, *row in zip(curves[0].points, *columns, strict=True)]


def judge(band: Band, measured: Band, alpha: float = ALPHA) -> list[BandVerdict]:
    """A verdict a point; one other than `within` comes by chance in no more than `alpha` of all comparisons, over all points together."""
    chances = chances_of(losses_of(band.curves), losses_of(measured.curves))
    rows = zip(spread(band.curves), spread(measured.curves), chances, strict=True)
    return [BandVerdict(ours.step, ours.mean, theirs.mean, p, _verdict(theirs.mean - ours.mean, p, alpha)) for ours, theirs, p in rows]


def chances_of(band: NDArray[np.float64], measured: NDArray[np.float64]) -> list[float]:
    """How often seeds dealt into two such groups differ at any point as much as these do at each: a permutation test of trimmed means.

    `band` (S, P), `measured` (F, P), both of four seeds or more. It asks nothing of how losses are distributed; the largest difference over
    all points stands for each deal, which accounts for the number of points (Westfall and Young, Resampling-Based Multiple Testing, 1993).
    """
    losses = np.concatenate([band, measured])
    scale = losses.std(0)
    order = _by_speed(losses)
    scaled = losses[order] / np.where(scale > 0, scale, 1.0)
    ours = np.flatnonzero(order >= len(band))
    deals = np.concatenate([ours[None], _deals(len(losses), len(measured))])
    differences = np.abs(_trimmed(scaled, deals) - _trimmed(scaled, _others(deals, len(losses))))
    largest = differences.max(1)
    return [float(np.mean(largest >= here - 1e-9)) for here in differences[0]]


def cpu_ratio(band: Band, measured: Band) -> float:
    """CPU-seconds to the last point, medians, as a multiple of the band's."""
    ours, theirs = (np.median([curve.points[-1].cpu_s for curve in side.curves]) for side in (band, measured))
    return float(theirs / ours)


def _verdict(difference: float, p: float, alpha: float) -> Verdict:
    if p > alpha:
        return "within"
    return "slower" if difference > 0 else "faster"


def _by_speed(losses: NDArray[np.float64]) -> NDArray[np.int64]:
    """The rows, the fastest run first."""
    scale = losses.std(0)
    return np.argsort((losses / np.where(scale > 0, scale, 1.0)).mean(1), kind="stable")


def _deals(runs: int, group: int) -> NDArray[np.int64]:
    """(G, group) groups of the runs, ascending: all there are, or as many drawn at random."""
    if math.comb(runs, group) <= MOST_DEALS:
        return np.array(list(combinations(range(runs), group)), np.int64)
    return np.sort(np.random.default_rng(0).random((MOST_DEALS, runs)).argsort(1)[:, :group])


def _others(deals: NDArray[np.int64], runs: int) -> NDArray[np.int64]:
    """Of each deal the runs that are not in it, ascending."""
    left = np.ones((len(deals), runs), bool)
    np.put_along_axis(left, deals, values=False, axis=1)
    return np.nonzero(left)[1].reshape(len(deals), -1)


def _trimmed(scaled: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """(G, P) means of groups of runs that are sorted by speed, without the first and the last of each."""
    return np.asarray(scaled[groups[:, 1:-1]].mean(1), np.float64)
