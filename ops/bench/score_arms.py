"""Trains a game by the CPU-seconds of this process, and tells on the way how its weights play: one arm of an experiment.

Usage: score_arms.py OUT.jsonl --game G [--set KEY=VALUE ...] [--at 150,300,450] [--games N] [--num-simulations N] [--opponent rule]
A game for one is told by its scores, one with graded positions by their mean loss, at one simulation too, and any other, or with
`--opponent`, by matches. Two arms beside each other differ by their settings alone, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import msgspec
from score_curve import alone
from turns import TurnsRun, arm

from azq.arena import positions
from azq.arena.grade import grade
from azq.arena.match import play_match
from azq.arena.player import Ground
from azq.arena.players import make_player
from azq.config import SearchConfig
from azq.console.grading import grade_figures
from azq.console.play import match_figures
from azq.notation.units import unit
from azq.wire.messages import MatchSpec


def main() -> None:
    """A line for the weights that know nothing, and one for each time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--game", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--at", default="150,300,450")
    parser.add_argument("--games", type=int, default=40)
    parser.add_argument("--num-simulations", type=int, default=16)
    parser.add_argument("--opponent", default="")
    given = parser.parse_args()
    run = TurnsRun(arm(given.game, given.set))
    with given.out.open("w") as out:
        for end in [0.0, *map(float, given.at.split(","))]:
            row = msgspec.to_builtins(run.go(end)) | {"settings": given.set} | measured(run, given)
            print(json.dumps(row), file=out, flush=True)
            run.kept.clear()  # thousands of long games


def measured(run: TurnsRun, given: argparse.Namespace) -> dict[str, Any]:
    """How the weights of now play."""
    if run.game.num_players() == 1:
        with run.player(given.num_simulations, seed=1, slots=given.games) as player:
            return {"scored": alone(run.game, player, given.games)}
    if not given.opponent and positions.available(run.game.name):
        return {"graded": [graded(run, simulations) for simulations in (1, given.num_simulations)]}
    opponent = given.opponent or "random"
    rival = make_player(opponent, Ground(run.game, None, SearchConfig(), given.num_simulations, seed=2, slots=given.games))
    with run.player(given.num_simulations, seed=1, slots=given.games) as player:
        played = play_match(MatchSpec("weights", opponent, given.games, given.num_simulations, 0, 1), run.game, player, rival)
    rival.close()
    return {"played": match_figures(played, unit(run.game))}


def graded(run: TurnsRun, num_simulations: int) -> dict[str, Any]:
    """Mean loss on the positions that come with the game."""
    with run.player(num_simulations) as player:
        return grade_figures(run.game, "weights", num_simulations, grade(run.game, player, positions.load(run.game.name)))


if __name__ == "__main__":
    main()
