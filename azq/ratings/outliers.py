"""Whether all workers play alike: a machine whose wins, draws and losses differ beyond chance from those of the others. Pure.

Only parts of one match are compared, whose games are drawn alike for every worker: a worker's counts against what its share of each
match should hold, over all matches together (Mantel, JASA 1963, for three outcomes): chi-square, of as many degrees of freedom as
outcomes that occur less one. Where few games are expected of an outcome, what it finds is asked again of games dealt to workers at random.
Pairs that share an opening vary less than independent games would, as both colours of it are played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from azq.ratings.matches import WholeMatch
from azq.stats import chi_square_chance

ERROR_RATE = 1e-4  # of a false alarm, over all workers of a look; there is a look at each new result
FEW_EXPECTED = 5.0
_DRAWS_PER_ALARM = 10  # so many random distributions as strange as what is asked about would be expected, were it just strange enough
_SEED = 0
_TOLERANCE = 1e-9  # of variances, which are far larger where there is one

Outcomes = NDArray[np.int64]  # (3,) games won, drawn, lost


@dataclass(frozen=True, slots=True)
class Outlier:
    """A worker, or machine, whose results differ from those of the others in the same matches by more than chance."""

    worker: str
    games: int
    score: float  # points a game, draws as a half
    others_score: float
    chance: float  # of a difference as large, were all alike
    pair: tuple[str, ...] = ()  # both, where there are but two: which of them differs is unknown

    def __str__(self) -> str:
        who = f"{' and '.join(self.pair)} differ" if self.pair else f"{self.worker} differs from the others"
        share = f"{self.score:.1%} of {self.games} games against {self.others_score:.1%} in the same matches"
        return f"{who} in results by more than chance: {share} (p {self.chance:.0e}); look at its machine, versions and weights"


@dataclass(frozen=True, slots=True)
class _Share:
    """What a worker had of one match."""

    own: Outcomes
    all: Outcomes

    @property
    def expected(self) -> NDArray[np.float64]:
        """(3,) of its games, were all alike."""
        return np.asarray(self.all * (self.own.sum() / self.all.sum()), np.float64)


def outliers(matches: Iterable[WholeMatch]) -> list[Outlier]:
    """Who plays differently, the strangest first; machines where there are several, else processes of one."""
    played = [(_tables(match, _host), _tables(match, str)) for match in matches]
    hosts = {name for by_host, _ in played for name in by_host}
    tables = [by_host if len(hosts) > 1 else by_process for by_host, by_process in played]
    differing: list[Outlier] = []
    while (worst := _strangest(tables)) is not None:
        differing.append(worst)
        if worst.pair:
            break
        tables = [{name: counts for name, counts in table.items() if name != worst.worker} for table in tables]
    return differing


def _host(worker: str) -> str:
    return worker.rpartition(":")[0] or worker


def _tables(match: WholeMatch, name_of: Callable[[str], str]) -> dict[str, Outcomes]:
    """What each had of a match."""
    table: dict[str, Outcomes] = {}
    for part in match.parts:
        if part.worker and part.games:
            name = name_of(part.worker)
            table[name] = table.get(name, np.zeros(3, np.int64)) + np.array([part.wins, part.draws, part.losses])
    return table


def _strangest(tables: Sequence[Mapping[str, Outcomes]]) -> Outlier | None:
    """Who differs most, if that is more than chance explains."""
    shares: dict[str, list[_Share]] = {}
    for table in tables:
        whole = sum(table.values(), np.zeros(3, np.int64))
        for name, own in table.items():
            if own.sum() < whole.sum():
                shares.setdefault(name, []).append(_Share(own, whole))
    if not shares:
        return None
    limit = ERROR_RATE / len(shares)
    chance, name = min((_chance(of_matches), name) for name, of_matches in shares.items())
    if chance < limit and min(share.expected[share.all > 0].min() for share in shares[name]) < FEW_EXPECTED:
        chance = _drawn_chance(shares[name], limit)
    if chance >= limit:
        return None
    own = sum((share.own for share in shares[name]), np.zeros(3, np.int64))
    others = sum((share.all for share in shares[name]), np.zeros(3, np.int64)) - own
    pair = tuple(sorted(shares)) if len(shares) == 2 else ()
    return Outlier(name, int(own.sum()), _score(own), _score(others), chance, pair)


def _score(outcomes: Outcomes) -> float:
    return float(outcomes @ [1.0, 0.5, 0.0] / outcomes.sum())


def _chance(shares: Sequence[_Share]) -> float:
    """The chance of a statistic as large, by chi-square."""
    covariance = _covariance(shares)
    statistic = float(_statistics(np.array([sum(share.own - share.expected for share in shares)]), covariance)[0])
    freedom = int(np.linalg.matrix_rank(covariance, tol=_TOLERANCE))
    return chi_square_chance(statistic, freedom)


def _drawn_chance(shares: Sequence[_Share], limit: float) -> float:
    """The same by drawing the worker's games from all of each match, again and again."""
    rng, count, covariance = np.random.default_rng(_SEED), int(_DRAWS_PER_ALARM / limit), _covariance(shares)
    drawn = sum(rng.multivariate_hypergeometric(share.all, int(share.own.sum()), count) - share.expected for share in shares)
    seen = _statistics(np.array([sum(share.own - share.expected for share in shares)]), covariance)[0]
    return float(1 + np.count_nonzero(_statistics(np.asarray(drawn), covariance) >= seen - 1e-9)) / (1 + count)


def _covariance(shares: Sequence[_Share]) -> NDArray[np.float64]:
    """(3, 3) of a worker's counts, over all its matches, given how many games it had of each."""
    total = np.zeros((3, 3))
    for share in shares:
        games, own = float(share.all.sum()), float(share.own.sum())
        spread = games * np.diag(share.all) - np.outer(share.all, share.all)
        total += own * (games - own) / (games**2 * (games - 1)) * spread
    return total


def _statistics(apart: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) of N differences (N, 3) from what was expected."""
    return np.asarray(np.einsum("ni,ij,nj->n", apart, np.linalg.pinv(covariance, rcond=_TOLERANCE, hermitian=True), apart))
