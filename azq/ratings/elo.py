"""Elo ratings from match results, with 95 % intervals: the Bradley-Terry model (Bradley and Terry, Biometrika 1952). Pure.

Draws count as half a win. With n seats, one against n - 1 of the other, first places follow Plackett and Luce: equals win one
game in n. A weak Gaussian prior keeps the rating of an undefeated player finite and gives a player that is not connected to
the anchor an honest, very wide interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from azq.stats import Z95
from azq.wire.messages import MatchResult
from azq.wire.parts import opponents

ANCHOR = "uct:100"
PRIOR_ELO = 1500.0  # standard deviation of the prior around the anchor
_PER_ELO = float(np.log(10.0) / 400.0)
_STEPS = 100
_LONGEST_STEP = 200.0  # Elo; a full Newton step overshoots where all games were won


@dataclass(frozen=True, slots=True)
class Rating:
    """A player's strength; `low` and `high` bound its 95 % interval, relative to the anchor, which is 0 by definition."""

    player: str
    elo: float
    low: float
    high: float
    games: int
    score: float  # points won, draws as a half


@dataclass(frozen=True, slots=True)
class _Matches:
    """M matches as columns: indices of both players, games, first places of the first player, opponents in a game."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    games: NDArray[np.float64]
    won: NDArray[np.float64]
    opponents: NDArray[np.float64]


def rate(results: Iterable[MatchResult], anchor: str = ANCHOR) -> list[Rating]:
    """Ratings of all players, strongest first; without the anchor among them, the first fixed opponent is 0. Games for one have none."""
    matches = [result for result in results if result.games and result.seats > 1 and result.first != result.second]
    players = list(dict.fromkeys(name for match in matches for name in (match.first, match.second)))
    if not players:
        return []
    index = {player: i for i, player in enumerate(players)}
    columns = _columns(matches, index)
    elo, deviation = _fit(columns, len(players), index[choose_anchor(players, anchor)])
    games, score = np.zeros(len(players)), np.zeros(len(players))
    for side, points in ((columns.first, columns.won), (columns.second, columns.games - columns.won)):
        np.add.at(games, side, columns.games)
        np.add.at(score, side, points)
    margin = Z95 * deviation
    ratings = [
        Rating(player, float(elo[i]), float(elo[i] - margin[i]), float(elo[i] + margin[i]), round(games[i]), float(score[i]))
        for i, player in enumerate(players)
    ]
    return sorted(ratings, key=lambda rating: (-rating.elo, rating.player))


def versions_of(name: str) -> tuple[int, ...]:
    """The versions of `weights:<version>,...`; none for every other player."""
    kind, _, versions = name.partition(":")
    return tuple(int(version) for version in versions.split(",") if version.isdecimal()) if kind == "weights" else ()


def version_of(name: str) -> int | None:
    """The one version of `weights:<version>`; None for every other player, an ensemble among them."""
    versions = versions_of(name)
    return versions[0] if len(versions) == 1 else None


def choose_anchor(players: list[str], wanted: str) -> str:
    """The player whose rating is 0: the wanted one, else the first that never changes, else the first."""
    if wanted in players:
        return wanted
    return next((player for player in players if not versions_of(player)), players[0])


def _columns(matches: list[MatchResult], index: dict[str, int]) -> _Matches:
    games = np.array([match.games for match in matches], np.float64)
    return _Matches(
        np.array([index[match.first] for match in matches], np.intp),
        np.array([index[match.second] for match in matches], np.intp),
        games,
        games * np.array([match.score for match in matches]),
        np.array([opponents(match) for match in matches], np.float64),
    )


def _fit(matches: _Matches, count: int, fixed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Most probable Elo and its standard deviation for each of `count` players; Newton's method on a concave function."""
    free = [i for i in range(count) if i != fixed]
    elo = np.zeros(count)
    information = np.eye(count)
    for _ in range(_STEPS):
        expected = 1.0 / (1.0 + matches.opponents * np.exp(-_PER_ELO * (elo[matches.first] - elo[matches.second])))
        surplus = _PER_ELO * (matches.won - matches.games * expected)
        gradient = -elo / PRIOR_ELO**2
        np.add.at(gradient, matches.first, surplus)
        np.add.at(gradient, matches.second, -surplus)
        weight = _PER_ELO**2 * matches.games * expected * (1.0 - expected)
        information = np.eye(count) / PRIOR_ELO**2
        pairs = (
            (matches.first, matches.first, 1),
            (matches.second, matches.second, 1),
            (matches.first, matches.second, -1),
            (matches.second, matches.first, -1),
        )
        for row, column, sign in pairs:
            np.add.at(information, (row, column), sign * weight)
        step = np.zeros(count)
        step[free] = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        elo += np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        if np.abs(step).max() < 1e-6:
            break
    deviation = np.zeros(count)
    deviation[free] = np.sqrt(np.diag(np.linalg.inv(information[np.ix_(free, free)])))
    return elo, deviation


@dataclass(frozen=True, slots=True)
class Scored:
    """A player's mean score; `low` and `high` bound its 95 % interval."""

    player: str
    score: float
    low: float
    high: float
    games: int


def score_table(results: Iterable[MatchResult]) -> list[Scored]:
    """Each player's mean over the games of all matches, the best first; nothing of games with opponents.

    A player who meets himself, as fresh weights do, or whom several others meet, has all these games.
    """
    parts: dict[str, list[tuple[int, float, float]]] = {}
    for result in results:
        if result.games and result.seats == 1:
            parts.setdefault(result.first, []).append((result.games, result.points, result.points_se))
            parts.setdefault(result.second, []).append((result.games, result.second_points, result.second_points_se))
    table = [_scored(player, of_player) for player, of_player in parts.items()]
    return sorted(table, key=lambda scored: (-scored.score, scored.player))


def _scored(player: str, parts: list[tuple[int, float, float]]) -> Scored:
    games = sum(count for count, _, _ in parts)
    mean = sum(count * points for count, points, _ in parts) / games
    squares = sum(count * (count - 1) * error**2 + count * (points - mean) ** 2 for count, points, error in parts)
    margin = Z95 * math.sqrt(squares / (games - 1) / games) if games > 1 else 0.0
    return Scored(player, mean, mean - margin, mean + margin, games)
