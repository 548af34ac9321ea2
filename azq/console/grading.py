"""`azq grade`: what a player's moves lose on graded positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from azq.arena import positions
from azq.arena.grade import Grade, grade
from azq.arena.match import Unit, unit
from azq.config import Config
from azq.console.players import Request, seated
from azq.games import Game


def grade_player(config: Config, request: Request, player: str, file: Path | None) -> dict[str, Any]:
    """The figures of one player on the positions of a file, or on those shipped for the game.

    Raises `ConfigError` naming the line that is wrong, `NotFound` for missing weights or a game without positions.
    """
    graded = positions.read(file) if file else positions.load(request.game)
    with seated(config, request, [player]) as (game, (seat,)):
        return figures(game, seat.name, request.num_simulations, grade(game, seat, graded))


def figures(game: Game, player: str, num_simulations: int, found: Grade) -> dict[str, Any]:
    """Plain values, losses in the game's unit; lost result classes only where results are certain: two players, no chance. Pure."""
    told = unit(game)
    certain = game.num_players() == 2 and not game.is_chance() and not game.is_hidden()
    rows = {name: _row(told, found.loss_by_class[name], errors, count, certain) for name, (errors, count) in sorted(found.by_class.items())}
    return {
        "game": game.name,
        "player": player,
        "num_simulations": num_simulations,
        "unit": told.loss_name,
        **_row(told, found.mean_loss, found.errors, found.positions, certain),
        "unlisted": found.unlisted,
        "by_class": rows,
    }


def _row(told: Unit, loss: float, errors: int, count: int, certain: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"positions": count, "mean_loss": round(loss * told.loss_scale, 4)}
    if certain:
        row |= {"errors": errors, "error_share": round(errors / count, 4) if count else 0.0}
    return row


def as_text(result: dict[str, Any]) -> str:
    """The figures as a table, a line for each class."""
    certain = "errors" in result
    head = f"{'class':<12} {'positions':>9} {'mean loss':>10}" + (f" {'lost classes':>13}" if certain else "")
    rows = {**result["by_class"], "all": result}
    lines = [f"{result['player']} at {result['game']}, loss in {result['unit']}", head]
    for name, row in rows.items():
        share = f" {row['error_share']:>13.1%}" if certain else ""
        lines.append(f"{name or '-':<12} {row['positions']:>9} {row['mean_loss']:>10.4g}{share}")
    if result["unlisted"]:
        lines.append(f"{result['unlisted']} moves are not graded in the file; each counts as the worst that is")
    return "\n".join(lines)
