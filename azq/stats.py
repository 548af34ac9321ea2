"""Statistics that several packages judge by: intervals of 95 %, exact tests, and a sequential test of strength. Pure."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from azq.errors import ConfigError

Z95 = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution
SCORES = (1.0, 0.5, 0.0)  # of a win, a draw, a loss
_UNSEEN = 1e-3  # games of an outcome that was not seen yet: no hypothesis becomes impossible by its absence
_HALVINGS = 60
SprtVerdict = Literal["accepted", "rejected", "open"]  # `elo1` rather than `elo0`, the other way round, not enough games yet


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """The log-likelihood ratio of `elo1` against `elo0`, and the bounds that end the test."""

    llr: float
    lower: float
    upper: float
    verdict: SprtVerdict


def sequential_test(
    wins: int, draws: int, losses: int, elo0: float, elo1: float, alpha: float = 0.05, beta: float = 0.05, seats: int = 2
) -> SequentialTest:
    """Whether one player is stronger than another, decided while games come in: accepted where `elo1` rather than `elo0` is its lead.

    The generalised sequential probability ratio test: Wald's bounds (Annals of Mathematical Statistics 1945, section 3) on the ratio of
    the greatest likelihoods under two hypotheses (Li, Liu and Ying, Sequential Analysis 2014, section 2): that the expected score is the
    one of `elo0`, or that of `elo1`, whatever the share of draws. Elo is of the logistic kind. Games count as if independent: pairs that
    share an opening make the test, if anything, more careful.

    A player of strength `elo0` is accepted with probability `alpha` at most, one of `elo1` rejected with `beta` at most.
    With n `seats` the first player has one and the other all others, and equals win one game in n.
    Raises `ConfigError` where `elo0` is not below `elo1` or an error rate is not between 0 and 0.5.
    """
    if not elo0 < elo1:
        raise ConfigError(f"a sequential test asks for elo0 below elo1, not {elo0:g} and {elo1:g}")
    if not (0 < alpha < 0.5 and 0 < beta < 0.5):
        raise ConfigError(f"error rates of a sequential test lie between 0 and 0.5, not alpha {alpha:g} and beta {beta:g}")
    lower, upper = math.log(beta / (1 - alpha)), math.log((1 - beta) / alpha)
    games = wins + draws + losses
    counts = [count or _UNSEEN for count in (wins, draws, losses)]
    llr = _log_likelihood(counts, expected_score(elo1, seats)) - _log_likelihood(counts, expected_score(elo0, seats)) if games else 0.0
    return SequentialTest(llr, lower, upper, "accepted" if llr >= upper else "rejected" if llr <= lower else "open")


def expected_score(elo: float, seats: int = 2) -> float:
    """The share of first places of a player so much stronger than the one in all other seats."""
    return 1 / (1 + (seats - 1) * 10 ** (-elo / 400))


def _log_likelihood(counts: Sequence[float], score: float) -> float:
    """Up to a constant, the greatest of all distributions over `SCORES` of this mean: each count's share over 1 + t (its score - mean)."""
    apart = [value - score for value in SCORES]
    low, high = -1 / apart[0], -1 / apart[-1]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = sum(count * part / (1 + middle * part) for count, part in zip(counts, apart, strict=True))
        low, high = (middle, high) if slope > 0 else (low, middle)
    return -sum(count * math.log1p((low + high) / 2 * part) for count, part in zip(counts, apart, strict=True))


def wilson(successes: float, tries: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, JASA 1927); all of it without a try."""
    if not tries:
        return 0.0, 1.0
    share, z2 = successes / tries, Z95**2
    middle = (share + z2 / (2 * tries)) / (1 + z2 / tries)
    half = Z95 * (share * (1 - share) / tries + z2 / (4 * tries**2)) ** 0.5 / (1 + z2 / tries)
    return max(0.0, middle - half), min(1.0, middle + half)


def binomial_tail(successes: int, tries: int, share: float) -> float:
    """The chance that so many tries or more succeed, each with this probability."""
    return sum(math.comb(tries, count) * share**count * (1 - share) ** (tries - count) for count in range(successes, tries + 1))


def paired_interval(differences: NDArray[np.float64]) -> tuple[float, float, float]:
    """The mean of differences with its 95 % interval; infinitely wide for fewer than two."""
    mean, count = float(differences.mean()), len(differences)
    half = Z95 * float(differences.std(ddof=1)) / count**0.5 if count > 1 else float("inf")
    return mean, mean - half, mean + half


def chance_of_sum(logs: Sequence[float]) -> float:
    """How often the sum is as large where each sign is as likely as the other: an exact permutation test of pairs (Fisher, 1935)."""
    total = sum(logs) - 1e-12
    count = sum(sum(signed) >= total for signed in itertools.product(*((log, -log) for log in logs)))
    return count / float(2 ** len(logs))


def rank_sum_chance(first: Sequence[float], second: Sequence[float]) -> float:
    """How often the ranks of so many of all numbers, dealt at random, sum to as little as those of `first`; equals share their ranks' mean.

    The exact one-sided test of Wilcoxon (Biometrics Bulletin 1945) and of Mann and Whitney (Annals of Mathematical Statistics 1947).
    """
    ordered = sorted([*first, *second])
    doubled = {number: bisect_left(ordered, number) + bisect_right(ordered, number) + 1 for number in ordered}
    ways = [Counter({0: 1}), *(Counter[int]() for _ in first)]  # by how many were dealt: how often their ranks sum to what
    for number in ordered:
        for size in range(len(first), 0, -1):
            ways[size].update({total + doubled[number]: count for total, count in ways[size - 1].items()})
    limit = sum(doubled[number] for number in first)
    return sum(count for total, count in ways[-1].items() if total <= limit) / math.comb(len(ordered), len(first))


def chance_above(gap: float, error: float) -> float:
    """How often a normal number of mean 0 and this standard error is larger than a gap; one of 0 is no surprise without any error."""
    return math.erfc(gap / error / math.sqrt(2)) / 2 if error else float(gap <= 0)


def chi_square_chance(statistic: float, freedom: int) -> float:
    """The chance that chi-square of 0, 1 or 2 degrees of freedom is as large."""
    return (1.0, math.erfc(math.sqrt(statistic / 2)), math.exp(-statistic / 2))[freedom]


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """p-values that bear being asked together: the chance of any false alarm among them stays what one's was."""
    corrected, least = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = least
    return corrected
