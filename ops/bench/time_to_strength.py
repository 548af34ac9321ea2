"""From nothing to a target error on graded positions: wall clock with everything included, from the start of `azq up`.

Usage: time_to_strength.py OUT.json [--target 0.04] [--num-simulations 400] [--minutes 30] [--preset NAME] [--config RECIPE.toml]
           [--set section.key=value ...]                        stops at the target
Writes the figures as JSON after each grade. A version counts from the moment it was published; what grading costs in the run is in
`cpu_s.grader`. Ctrl-C drains the run and leaves what was written.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azq.arena.player import MAX_SLOTS
from azq.arena.regret import judged
from azq.config import load as load_config
from azq.console.move import weight_version
from azq.console.play import Seating, seated
from azq.local import Local
from azq.ratings.positions import Position, choose, load
from azq.stats import wilson

RUN = "strength"
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Exam:
    """How versions are graded."""

    positions: Sequence[Position]
    num_simulations: int
    target: float
    every_s: float


def reached(rows: Sequence[dict[str, Any]], target: float) -> float | None:
    """Seconds to the publication of the first graded version at or below the target; None where none was. Pure."""
    return next((row["seconds"] for row in rows if row["error_share"] <= target), None)


def grade_weights(game: str, folder: Path, weights: Path, exam: Exam, begun: float) -> dict[str, Any]:
    """One row of the curve: when these weights were published, seconds after the start, and which positions they get wrong."""
    config = load_config(overrides=[f'home="{folder.parent}"', "inference.threads=1"])
    seating = Seating(game, folder.name, str(weights), exam.num_simulations, slots=MAX_SLOTS)
    with seated(config, seating, ["latest"]) as (rules, (player,)):
        marks, _ = judged(rules, player, exam.positions)
    wrong = [index for index, mark in enumerate(marks) if mark.loses_class]
    low, high = wilson(len(wrong), len(exam.positions))
    return {
        "seconds": round(weights.stat().st_mtime - begun, 1),
        "version": weight_version(weights),
        "errors": len(wrong),
        "positions": len(exam.positions),
        "error_share": round(len(wrong) / len(exam.positions), 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "wrong": wrong,
    }


def newest(folder: Path) -> Path | None:
    """The weights that the run published last; those of before the first step do not count."""
    return next(iter(sorted((folder / "weights").glob("*.safetensors"), key=weight_version)[1:][::-1]), None)


def curve(run: Local, exam: Exam, begun: float) -> Iterator[dict[str, Any]]:
    """A row a graded version, the last one included, until the run is over or at the target."""
    graded, due, over = 0, time.monotonic(), False
    while not over:
        over = not run.alive
        weights = newest(run.folder / RUN) if over or time.monotonic() >= due else None
        if weights and weight_version(weights) > graded:
            due = time.monotonic() + exam.every_s
            row = grade_weights(run.game, run.folder / RUN, weights, exam, begun)
            share = f"{row['error_share']:6.1%} ({row['low']:.1%} to {row['high']:.1%})"
            print(f"{row['seconds']:7.1f} s  version {row['version']:4d}  {share}", file=sys.stderr, flush=True)
            graded, over = row["version"], over or row["error_share"] <= exam.target
            yield row
        for _ in run.statuses(LOOK_S):
            pass


def figures_of(run: Local, rows: Sequence[dict[str, Any]], target: float, begun: float) -> dict[str, Any]:
    """What the run did so far, and what it cost."""
    status, grader = run.status(), time.process_time()
    counts = {
        "games": status.ledger.finished if status else 0,
        "samples": status.samples if status else 0,
        "steps": status.learner_step if status else 0,
        "versions": status.weight_version if status else 0,
    }
    cpu_s = {"all": round(run.cpu_s(), 1), "grader": round(grader, 1)}
    return {"reached_s": reached(rows, target), "wall_s": round(time.time() - begun, 1), **counts, "cpu_s": cpu_s, "rows": list(rows)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--game", default="connect_four")
    parser.add_argument("--target", type=float, default=0.04)
    parser.add_argument("--num-simulations", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--preset", default="")
    parser.add_argument("--config", default="")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--every-s", type=float, default=60.0, help="seconds between two gradings in the run, each of which costs it some")
    parser.add_argument("--count", type=int, default=0, help="of the positions, so many at most, in equal shares of the classes")
    return parser.parse_args()


def main() -> None:
    """Reads the arguments, measures."""
    given = parse()
    positions = choose(load(given.game), given.count, seed=0) if given.count else load(given.game)
    exam = Exam(positions, given.num_simulations, given.target, given.every_s)
    title = f"{given.game}, {exam.num_simulations} simulations, {len(positions)} solved positions"
    about = {
        "title": title,
        "target": exam.target,
        "num_simulations": exam.num_simulations,
        "positions": len(positions),
    }
    options = ["--until", f"minutes={given.minutes:g}", *(["--preset", given.preset] if given.preset else [])]
    options += ["--config", str(Path(given.config).absolute())] if given.config else []
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="azq-strength-") as scratch:
        begun, folder = time.time(), Path(scratch)
        with Local(given.game, run=RUN, settings=given.overrides, options=options, folder=folder) as run:
            for row in curve(run, exam, begun):
                rows.append(row)
                given.out.write_text(json.dumps({**about, **figures_of(run, rows, exam.target, begun)}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
