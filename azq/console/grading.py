"""`azq grade`, `azq solve`, `azq exploitability`: what moves lose where the best ones are known, and small games exactly."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azq import games
from azq.arena.exploit import grown, measured, policies_of
from azq.arena.grade import Grade, summarise
from azq.arena.regret import Mean, Regret, calibration_error, judged, reliability
from azq.arena.solve import Drawn, Solved, Table, by_looks, by_notation, check_solvable, endgames
from azq.config import Config
from azq.console.play import Seating, params_of, seated
from azq.console.table import tabled
from azq.errors import ConfigError
from azq.files import check_output, write_output
from azq.games import Game
from azq.notation.units import Unit, unit
from azq.ratings import positions
from azq.ratings.positions import MARGIN, solved_file
from azq.stats import Z95


def grade_player(config: Config, seating: Seating, player: str, file: Path | None) -> dict[str, Any]:
    """The figures of one player on the positions of a file, or on those shipped for the game.

    Raises `ConfigError` naming the line that is wrong, `NotFound` for missing weights or a game without positions.
    """
    graded = positions.read(file) if file else positions.load(seating.game, params_of(config, seating), config.home)
    with seated(config, seating, [player]) as (game, (seat,)):
        marks, regret = judged(game, seat, graded)
        figures = grade_figures(game, seat.name, seating.num_simulations, summarise(marks))
        return figures | ({"regret": regret_figures(game, regret)} if regret else {})


def regret_figures(game: Game, regret: Regret) -> dict[str, Any]:
    """Plain values, losses in the game's unit, with standard errors; values from -1 to 1. Pure."""
    scale = unit(game).loss_scale
    means = {"policy": Mean.of(scale * regret.policy), "search": Mean.of(scale * regret.search), "value_error": Mean.of(regret.value_error)}
    values = {name: {"mean": round(mean.value, 6), "error": round(mean.error, 6)} for name, mean in means.items()}
    rows = [{"said": round(predicted, 4), "true": round(true, 4), "positions": count} for predicted, true, count in reliability(regret)]
    return values | {"calibration_error": round(calibration_error(regret), 4), "reliability": rows}


def grade_figures(game: Game, player: str, num_simulations: int, result: Grade) -> dict[str, Any]:
    """Plain values, losses in the game's unit; lost result classes only where results are certain: one player or two, no chance. Pure."""
    measure = unit(game)
    certain = game.num_players() <= 2 and not game.is_chance() and not game.is_hidden()
    rows = {
        name: _row(measure, result.loss_by_class[name], errors, count, certain) for name, (errors, count) in sorted(result.by_class.items())
    }
    return {
        "game": game.name,
        "player": player,
        "num_simulations": num_simulations,
        "unit": measure.loss_name,
        **_row(measure, result.mean_loss, result.errors, result.positions, certain),
        "unlisted": result.unlisted,
        "by_class": rows,
    }


def _row(measure: Unit, loss: float, errors: int, count: int, certain: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"positions": count, "mean_loss": round(loss * measure.loss_scale, 4)}
    if certain:
        row |= {"errors": errors, "error_share": round(errors / count, 4) if count else 0.0}
    return row


def grade_text(result: dict[str, Any]) -> str:
    """The figures as a table, a line for each class."""
    certain = "errors" in result
    rows = [
        [name or "-", row["positions"], f"{row['mean_loss']:.4g}", *([f"{row['error_share']:.1%}"] if certain else [])]
        for name, row in {**result["by_class"], "all": result}.items()
    ]
    lines = [f"{result['player']} at {result['game']}, loss in {result['unit']}"]
    lines += tabled(rows, "class", "#positions", "#mean loss", *(["#lost classes"] if certain else []))
    if result["unlisted"]:
        lines.append(f"{result['unlisted']} moves are not graded in the file; each counts as the worst that is")
    if "regret" in result:
        lines.append(_regret_line(result["regret"], result["unit"]))
    return "\n".join(lines)


def _regret_line(regret: Mapping[str, Any], name: str) -> str:
    values = {key: f"{regret[key]['mean']:.4f} +-{Z95 * regret[key]['error']:.4f}" for key in ("policy", "search", "value_error")}
    return (
        f"expected loss in {name}: {values['policy']} by the network's shares, {values['search']} by the search's; "
        f"squared error of its value {values['value_error']}, off by {regret['calibration_error']:.3f} on the mean of its bins (95 %)"
    )


TRIES = 50  # random games for each position that is asked for
PHASES = ("early", "middle", "late")


@dataclass(frozen=True, slots=True)
class SolveRequest:
    """What the command line asked for."""

    game: str
    params: Mapping[str, Any]
    home: Path
    endgames: int = 0  # plies; 0: the whole game
    out: Path | None = None
    positions: int = 600
    max_states: int = 1_000_000
    by_looks: bool = False
    seed: int = 0


def solve(request: SolveRequest, report: Callable[[str], object]) -> dict[str, Any]:
    """Solves, writes the file whole or not at all, and tells what was found. Raises `ConfigError` for what cannot be solved."""
    game = games.load(request.game, **request.params)
    check_solvable(game)
    path = request.out or solved_file(request.home, request.game, request.params)
    check_output(path)
    figures, graded = (_ends if request.endgames else _whole)(game, request, report)
    if not graded:
        raise ConfigError(f"{request.game}: no position in which one move is better than another was found, so there is nothing to grade")
    write_output(path, as_lines(graded, score=game.num_players() == 1).encode())
    return {"game": request.game, "params": dict(request.params), **figures, "graded": len(graded), "file": str(path)}


def _whole(game: games.Game, request: SolveRequest, report: Callable[[str], object]) -> tuple[dict[str, Any], list[Solved]]:
    drawn = Drawn(request.positions, request.seed)
    progress = ProgressLine(report, lambda: f"{len(table.values):,} positions")
    table = Table(by_looks if request.by_looks else by_notation, request.max_states, progress, drawn)
    root = table.solve(game.new_initial_state())
    value = root.value()
    best = [action for value_, (action, _) in zip(root.values, root.edges, strict=True) if abs(value_ - value) < MARGIN]
    best = best if root.state.current_player() >= 0 else []
    score = {"score": round(unit(game).convert(value), 6)} if game.num_players() == 1 else {}
    return {"positions": len(table.values), "value": round(value, 9), **score, "best": best, "decisive": drawn.matter}, drawn.kept


def _ends(game: games.Game, request: SolveRequest, report: Callable[[str], object]) -> tuple[dict[str, Any], list[Solved]]:
    results: list[Solved] = []
    progress = ProgressLine(report, lambda: f"{len(results)} of {request.positions} positions from {tries:,} random games")
    key = by_looks if request.by_looks else by_notation
    rng = random.Random(request.seed)
    for tries, ending in enumerate(endgames(game, request.endgames, key, request.max_states, rng, progress), 1):
        results += [ending] if ending else []
        if len(results) == request.positions or tries == TRIES * request.positions:
            break
    return {"endgames": request.endgames, "random_games": tries}, results


def as_lines(graded: Sequence[Solved], *, score: bool) -> str:
    """Graded positions as `azq.ratings.positions` reads them, in thirds by their plies. Pure."""
    longest = 1 + max(len(position.actions) for position in graded)
    rows = [
        {"actions": position.actions, "moves": {str(action): round(value, 9) for action, value in position.moves.items()},
         "class": PHASES[3 * len(position.actions) // longest]} | ({"score": True} if score else {})
        for position in sorted(graded, key=lambda position: (len(position.actions), position.actions))
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


def solve_text(result: Mapping[str, Any]) -> str:
    """Two lines."""
    if "value" in result:
        outcome = {1.0: "player 0 wins", 0.0: "a draw", -1.0: "player 1 wins"}.get(result["value"], "by perfect play")
        what = f"at best {result['score']:,g} (" if "score" in result else f"{outcome} (value {result['value']:g}, "
        best = f"best {' '.join(map(str, result['best']))}" if result["best"] else "chance begins"
        first = f"{result['game']}: {what}{best}); {result['positions']:,} positions, a choice matters in {result['decisive']:,}"
    else:
        first = f"{result['game']}: endgames of at most {result['endgames']} plies, from {result['random_games']:,} random games"
    return f"{first}\n{result['graded']} graded positions in {result['file']}"


def exploit_player(config: Config, seating: Seating, player: str, max_nodes: int, report: Callable[[str], object]) -> dict[str, Any]:
    """NashConv of each of a player's policies, in the unit of returns. Raises `ConfigError` for a game that is too large."""
    with seated(config, seating, [player]) as (game, (seat,)):
        seen = 0

        def count() -> None:
            nonlocal seen
            seen += 1
            progress()

        progress = ProgressLine(report, lambda: f"{seen:,} histories")
        tree = grown(game, max_nodes, count)
        report(f"{tree.nodes:,} histories, {len(tree.histories):,} information states; {seat.name} is asked in each")
        rows = {name: measured(tree, policy) for name, policy in policies_of(game, seat, tree.histories).items()}
        policies = {
            name: {
                "exploitability": exploited.exploitability,
                "nash_conv": exploited.nash_conv,
                "values": exploited.values,
                "best_responses": exploited.best,
            }
            for name, exploited in rows.items()
        }
        sizes = {"histories": tree.nodes, "information_states": len(tree.histories)}
        return {"game": game.name, "player": seat.name, "num_simulations": seating.num_simulations, **sizes, "policies": policies}


def exploit_text(result: Mapping[str, Any]) -> list[str]:
    """A line a policy and seat."""
    head = f"{result['player']} at {result['game']}: {result['histories']:,} histories, {result['information_states']:,} information states"
    rows = (
        (name, *(f"{policy[figure]:.4f}" for figure in ("exploitability", "nash_conv")), seat, f"{value:+.4f}", f"{best:+.4f}")
        for name, policy in result["policies"].items()
        for seat, (value, best) in enumerate(zip(policy["values"], policy["best_responses"], strict=True))
    )
    return [head, *tabled(rows, "policy", "#exploitability", "#NashConv", "#seat", "#result", "#best response")]


TELL_EVERY_S = 2.0


class ProgressLine:
    """A tick that now and then tells how far it is."""

    def __init__(self, report: Callable[[str], object], text: Callable[[], str]) -> None:
        self._report, self._text = report, text
        self._next = time.monotonic() + TELL_EVERY_S

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_EVERY_S
            self._report(self._text())
