"""`azq match`: two players against each other on this machine, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from azq.arena.match import Unit, play_match, unit, whole_groups
from azq.arena.rating import Z95
from azq.config import Config
from azq.console.players import Request, seated
from azq.errors import ConfigError
from azq.wire.messages import MatchResult, MatchSpec

MAX_SEATS = 8  # of any game; a bound for the searches held at once


def match_players(config: Config, request: Request, first: str, second: str, games: int, opening_plies: int) -> dict[str, Any]:
    """The result of a match as plain values; raises what `play_match` and `seated` raise."""
    if games < 1 or opening_plies < 0:
        raise ConfigError(f"--games {games} must be at least 1 and --opening-plies {opening_plies} at least 0")
    spec = MatchSpec(first, second, games, request.num_simulations, opening_plies, request.seed)
    with seated(config, replace(request, slots=whole_groups(games, MAX_SEATS)), [first, second]) as (game, players):
        return figures(play_match(spec, game, *players), unit(game))


def figures(result: MatchResult, told: Unit) -> dict[str, Any]:
    """Plain values; `points_95` is half the width of a 95 % interval. Pure."""
    return {
        "first": result.first,
        "second": result.second,
        "seats": result.seats,
        "games": result.games,
        "wins": result.wins,
        "draws": result.draws,
        "losses": result.losses,
        "share": round(result.score, 4),
        "unit": told.name,
        "points": round(result.points, 4),
        "points_95": round(Z95 * result.points_se, 4),
    }


def as_text(result: dict[str, Any]) -> str:
    """The result in two lines."""
    fair = f", {1 / result['seats']:.1%} between equals" if result["seats"] > 2 else ""
    opponents = f"{result['seats'] - 1} x {result['second']}" if result["seats"] > 2 else result["second"]
    return (
        f"{result['first']} - {opponents}: {result['wins']} won, {result['draws']} drawn, {result['losses']} lost, "
        f"share {result['share']:.1%}{fair}\n"
        f"{result['points']:+.4f} +-{result['points_95']:.4f} {result['unit']} a game ({result['games']} games, 95 %)"
    )
