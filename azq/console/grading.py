"""`azq grade`: what a player's moves lose on positions whose moves are known, and how much a network's own judgement does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from azq.arena import positions
from azq.arena.grade import Grade, summarise
from azq.arena.rating import Z95
from azq.arena.regret import Mean, Regret, calibration_error, judged, reliability
from azq.config import Config
from azq.console.play import Seating, params_of, seated
from azq.games import Game
from azq.notation.units import Unit, unit


def grade_player(config: Config, seating: Seating, player: str, file: Path | None) -> dict[str, Any]:
    """The figures of one player on the positions of a file, or on those shipped for the game.

    Raises `ConfigError` naming the line that is wrong, `NotFound` for missing weights or a game without positions.
    """
    graded = positions.read(file) if file else positions.load(seating.game, params_of(config, seating), config.home)
    with seated(config, seating, [player]) as (game, (seat,)):
        marks, regret = judged(game, seat, graded)
        figures = grade_figures(game, seat.name, seating.num_simulations, summarise(marks))
        return figures | ({"regret": regret_figures(game, regret)} if regret else {})


def regret_figures(game: Game, found: Regret) -> dict[str, Any]:
    """Plain values, losses in the game's unit, with standard errors; values from -1 to 1. Pure."""
    scale = unit(game).loss_scale
    means = {"policy": Mean.of(scale * found.policy), "search": Mean.of(scale * found.search), "value_error": Mean.of(found.value_error)}
    told = {name: {"mean": round(mean.value, 6), "error": round(mean.error, 6)} for name, mean in means.items()}
    rows = [{"said": round(said, 4), "true": round(true, 4), "positions": count} for said, true, count in reliability(found)]
    return told | {"calibration_error": round(calibration_error(found), 4), "reliability": rows}


def grade_figures(game: Game, player: str, num_simulations: int, found: Grade) -> dict[str, Any]:
    """Plain values, losses in the game's unit; lost result classes only where results are certain: one player or two, no chance. Pure."""
    told = unit(game)
    certain = game.num_players() <= 2 and not game.is_chance() and not game.is_hidden()
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


def grade_text(result: dict[str, Any]) -> str:
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
    if "regret" in result:
        lines.append(_regret_line(result["regret"], result["unit"]))
    return "\n".join(lines)


def _regret_line(regret: Mapping[str, Any], name: str) -> str:
    told = {key: f"{regret[key]['mean']:.4f} +-{Z95 * regret[key]['error']:.4f}" for key in ("policy", "search", "value_error")}
    return (
        f"expected loss in {name}: {told['policy']} by the network's shares, {told['search']} by the search's; "
        f"squared error of its value {told['value_error']}, off by {regret['calibration_error']:.3f} on the mean of its bins (95 %)"
    )
