"""Mean scores of players in a game for one, with 95 % intervals, from their matches: what stands in the place of ratings there. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from azq.stats import Z95
from azq.wire.messages import MatchResult


@dataclass(frozen=True, slots=True)
class Scored:
    """A player's mean score; `low` and `high` bound its 95 % interval."""

    player: str
    score: float
    low: float
    high: float
    games: int


def score_table(results: Iterable[MatchResult]) -> list[Scored]:
    """Everybody's mean over the games of all matches, the best first; nothing of games with opponents.

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
