"""Trains a game twice at once, by two settings and a core each, for so many CPU-seconds, then lets the weights of the two play each other.

Usage: arm_against_arm.py OUT.json --game G --first KEY=VALUE ... --second KEY=VALUE ... [--cpu-s 600] [--games 200] [--num-simulations 64]
       [--opening-plies 2,4,8] [--positions FILE.jsonl]
Each arm is `turns.py`'s run of the preset in a process of its own. A match for each number of random opening plies, every opening from each
seat, at the same budget for both. With graded positions (`azq solve`, `make_positions.py`) also what each loses there at that budget, and
the second one less the first, position by position.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turns import HOST, TurnsRun, arm, graded, losses

from azq import games
from azq.arena.match import play_match
from azq.arena.player import Ground
from azq.arena.players import NetworkPlayer
from azq.arena.positions import Position, read
from azq.arena.regret import Mean
from azq.config import RunSections
from azq.console.play import match_figures
from azq.games import Game
from azq.inference.ask.local import LocalEvaluator
from azq.nets.weights import WeightsMeta, to_bytes
from azq.notation.units import unit
from azq.wire.messages import MatchSpec


def main() -> None:
    """Both arms, then their matches; figures go to the file and to the terminal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--game", required=True)
    parser.add_argument("--first", nargs="*", default=[])
    parser.add_argument("--second", nargs="*", default=[])
    parser.add_argument("--cpu-s", type=float, default=600.0)
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--num-simulations", type=int, default=64)
    parser.add_argument("--opening-plies", default="2,4,8")
    parser.add_argument("--positions", type=Path)
    given = parser.parse_args()
    settings = [given.first, given.second]
    sections = [arm(given.game, each) for each in settings]
    positions = graded(game_of(sections[0]), read(given.positions)) if given.positions else []
    files = [given.out.with_suffix(f".{name}.safetensors") for name in ("first", "second")]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        counts = pool.map(trained, sections, [given.cpu_s] * 2, files)
        rows = [{"settings": one, **each} for one, each in zip(settings, counts, strict=True)]
        match = partial(played, sections, files, given.games, given.num_simulations)
        matches = list(pool.map(match, map(int, given.opening_plies.split(","))))
        lost = pool.map(partial(lost_by, positions, given.num_simulations), sections, files) if positions else ()
        figures = {"game": given.game, "arms": rows, "matches": matches} | ({"positions": against(*lost)} if positions else {})
    given.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(given.out.read_text())


def trained(sections: RunSections, cpu_s: float, to: Path) -> dict[str, Any]:
    """What one arm has behind it; its averaged weights are in the file."""
    run = TurnsRun(sections)
    while (counts := run.counts).cpu_s < cpu_s:
        print(counts, flush=True)
        run.go(min(cpu_s, counts.cpu_s + 20.0))
        run.kept.clear()  # thousands of long games
    meta = WeightsMeta(run.game.name, 1, counts.steps, sections.run.params, sections.network.model_dump())
    to.write_bytes(to_bytes(run.trainer.averaged, meta))
    return asdict(counts)


def played(sections: Sequence[RunSections], files: Sequence[Path], count: int, num_simulations: int, plies: int) -> dict[str, Any]:
    """The match of the two, told from the first arm's seat."""
    game = game_of(sections[0])
    spec = MatchSpec("first", "second", count, num_simulations, plies, 1)
    with player(game, sections[0], files[0], num_simulations) as first, player(game, sections[1], files[1], num_simulations) as second:
        result = play_match(spec, game, first, second)
    return {"opening_plies": plies, **match_figures(result, unit(game))}


def lost_by(positions: Sequence[Position], num_simulations: int, sections: RunSections, weights: Path) -> dict[str, NDArray[np.float64]]:
    """What an arm loses on each position, as `turns.losses`."""
    game = game_of(sections)
    with player(game, sections, weights, num_simulations) as one:
        return losses(game, one, positions)


def game_of(sections: RunSections) -> Game:
    """The game that an arm is of."""
    return games.load(sections.run.game, **sections.run.params)


def against(first: Mapping[str, NDArray[np.float64]], second: Mapping[str, NDArray[np.float64]]) -> dict[str, dict[str, float]]:
    """Means of both, and of their differences with the standard error. Pure."""
    means = {name: (Mean.of(first[name]), Mean.of(second[name]), Mean.of(second[name] - first[name])) for name in first}
    return {name: {"first": a.value, "second": b.value, "difference": less.value, "se": less.error} for name, (a, b, less) in means.items()}


@contextmanager
def player(game: Game, sections: RunSections, weights: Path, num_simulations: int) -> Iterator[NetworkPlayer]:
    """Weights from a file, behind the arm's own search."""
    with closing(LocalEvaluator.from_file(game, weights, HOST)) as evaluator:
        yield NetworkPlayer((evaluator.weight_version,), Ground(game, evaluator, sections.search, num_simulations))


if __name__ == "__main__":
    main()
