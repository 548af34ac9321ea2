"""`azq solve`: a game solved exactly, and positions of it for `azq grade` and the arena."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azq import games
from azq.arena.positions import MARGIN, solved_file
from azq.arena.solve import Drawn, Solved, Table, by_looks, by_notation, check_solvable, endgames
from azq.console.progress import ProgressLine
from azq.errors import ConfigError
from azq.files import make_folders, publish_file
from azq.notation.units import unit

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


def solve(asked: SolveRequest, tell: Callable[[str], object]) -> dict[str, Any]:
    """Solves, writes the file whole or not at all, and tells what was found. Raises `ConfigError` for what cannot be solved."""
    game = games.load(asked.game, **asked.params)
    check_solvable(game)
    figures, found = (_ends if asked.endgames else _whole)(game, asked, tell)
    if not found:
        raise ConfigError(f"{asked.game}: no position in which one move is better than another was found, so there is nothing to grade")
    path = asked.out or solved_file(asked.home, asked.game, asked.params)
    make_folders(path.absolute().parent)
    publish_file(path, as_lines(found, score=game.num_players() == 1).encode())
    return {"game": asked.game, "params": dict(asked.params), **figures, "graded": len(found), "file": str(path)}


def _whole(game: games.Game, asked: SolveRequest, tell: Callable[[str], object]) -> tuple[dict[str, Any], list[Solved]]:
    drawn = Drawn(asked.positions, asked.seed)
    progress = ProgressLine(tell, lambda: f"{len(table.values):,} positions")
    table = Table(by_looks if asked.by_looks else by_notation, asked.max_states, progress, drawn)
    root = table.solve(game.new_initial_state())
    value = root.value()
    best = [action for value_, (action, _) in zip(root.values, root.edges, strict=True) if abs(value_ - value) < MARGIN]
    best = best if root.state.current_player() >= 0 else []
    score = {"score": round(unit(game).told(value), 6)} if game.num_players() == 1 else {}
    return {"positions": len(table.values), "value": round(value, 9), **score, "best": best, "decisive": drawn.matter}, drawn.kept


def _ends(game: games.Game, asked: SolveRequest, tell: Callable[[str], object]) -> tuple[dict[str, Any], list[Solved]]:
    found: list[Solved] = []
    progress = ProgressLine(tell, lambda: f"{len(found)} of {asked.positions} positions from {tries:,} random games")
    key = by_looks if asked.by_looks else by_notation
    rng = random.Random(asked.seed)
    for tries, one in enumerate(endgames(game, asked.endgames, key, asked.max_states, rng, progress), 1):
        found += [one] if one else []
        if len(found) == asked.positions or tries == TRIES * asked.positions:
            break
    return {"endgames": asked.endgames, "random_games": tries}, found


def as_lines(found: Sequence[Solved], *, score: bool) -> str:
    """Graded positions as `azq.arena.positions` reads them, in thirds by their plies. Pure."""
    longest = 1 + max(len(one.actions) for one in found)
    rows = [
        {"actions": one.actions, "moves": {str(action): round(value, 9) for action, value in one.moves.items()},
         "class": PHASES[3 * len(one.actions) // longest]} | ({"score": True} if score else {})
        for one in sorted(found, key=lambda one: (len(one.actions), one.actions))
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


def solve_text(told: Mapping[str, Any]) -> str:
    """Two lines."""
    if "value" in told:
        result = {1.0: "player 0 wins", 0.0: "a draw", -1.0: "player 1 wins"}.get(told["value"], "by perfect play")
        what = f"at best {told['score']:,g} (" if "score" in told else f"{result} (value {told['value']:g}, "
        best = f"best {' '.join(map(str, told['best']))}" if told["best"] else "chance begins"
        first = f"{told['game']}: {what}{best}); {told['positions']:,} positions, a choice matters in {told['decisive']:,}"
    else:
        first = f"{told['game']}: endgames of at most {told['endgames']} plies, from {told['random_games']:,} random games"
    return f"{first}\n{told['graded']} graded positions in {told['file']}"
