"""Elo ratings from match results, with 95 % intervals: the Bradley-Terry model (Bradley and Terry, Biometrika 1952). Pure.

Draws count as half a win. A weak Gaussian prior keeps the rating of an undefeated player finite and gives a player that is
not connected to the anchor an honest, very wide interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from azq.wire.messages import MatchResult

ANCHOR = "uct:100"
PRIOR_ELO = 1500.0  # standard deviation of the prior around the anchor
Z95 = 1.959964
_PER_ELO = float(np.log(10.0) / 400.0)
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Rating:
    """A player's strength; `low` and `high` bound its 95 % interval, relative to the anchor, which is 0 by definition."""

    player: str
    elo: float
    low: float
    high: float
    games: int
    score: float  # points won, draws as a half


def rate(results: Iterable[MatchResult], anchor: str = ANCHOR) -> list[Rating]:
    """Ratings of all players, strongest first; without the anchor among them, the first fixed opponent is 0."""
    matches = [result for result in results if result.wins + result.draws + result.losses and result.first != result.second]
    players = list(dict.fromkeys(name for match in matches for name in (match.first, match.second)))
    if not players:
        return []
    index = {player: i for i, player in enumerate(players)}
    points = np.zeros((len(players), len(players)))  # points[i, j]: won by i against j
    for match in matches:
        i, j = index[match.first], index[match.second]
        points[i, j] += match.wins + match.draws / 2
        points[j, i] += match.losses + match.draws / 2
    fixed = index[choose_anchor(players, anchor)]
    elo, deviation = _fit(points, fixed)
    games = (points + points.T).sum(axis=1)
    margin = Z95 * deviation
    ratings = [
        Rating(player, float(elo[i]), float(elo[i] - margin[i]), float(elo[i] + margin[i]), round(games[i]), float(points[i].sum()))
        for i, player in enumerate(players)
    ]
    return sorted(ratings, key=lambda rating: (-rating.elo, rating.player))


def choose_anchor(players: list[str], wanted: str) -> str:
    """The player whose rating is 0: the wanted one, else the first that never changes, else the first."""
    if wanted in players:
        return wanted
    return next((player for player in players if not player.startswith("weights:")), players[0])


def _fit(points: NDArray[np.float64], fixed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Most probable Elo and its standard deviation for each of N players; Newton's method on a concave function."""
    count = len(points)
    free = [i for i in range(count) if i != fixed]
    games = points + points.T
    elo = np.zeros(count)
    information = np.eye(count)
    for _ in range(_STEPS):
        expected = 1.0 / (1.0 + np.exp(-_PER_ELO * (elo[:, None] - elo[None, :])))
        gradient = _PER_ELO * (points - games * expected).sum(axis=1) - elo / PRIOR_ELO**2
        weight = _PER_ELO**2 * games * expected * (1.0 - expected)
        information = np.diag(weight.sum(axis=1) + 1.0 / PRIOR_ELO**2) - weight
        step = np.zeros(count)
        step[free] = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        elo += np.clip(step, -200.0, 200.0)  # a full Newton step overshoots where all games were won
        if np.abs(step).max(initial=0.0) < 1e-6:
            break
    deviation = np.zeros(count)
    deviation[free] = np.sqrt(np.diag(np.linalg.inv(information[np.ix_(free, free)])))
    return elo, deviation
