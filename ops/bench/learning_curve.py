"""Draws a run's learning curve: errors on the graded connect-four positions over the minutes of the run, from the weights it kept.

Usage: learning_curve.py RUN_FOLDER OUT.png [--num-simulations N] [--points K] [--reuse OUT.json]
Writes the figures beside the picture as JSON; with --reuse the picture is drawn from such a file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from azq.arena.grade import mark
from azq.arena.positions import load
from azq.config import load as load_config
from azq.console.move import open_player, weight_version

GOAL = 0.06
UCT_2000 = 0.085  # docs/4-training.md


def measure(folder: Path, num_simulations: int, points: int) -> list[dict[str, Any]]:
    """Errors of weights spread evenly over the run; minutes are those since its first weights."""
    files = sorted((folder / "weights").glob("*.safetensors"), key=weight_version)
    first_s = files[0].stat().st_mtime
    last = len(files) - 1
    chosen = sorted({round(last * i / (points - 1)) for i in range(points)})
    config = load_config(overrides=[f'home="{folder.parent}"'])
    positions = load("connect_four")
    rows = []
    for index in chosen:
        player = open_player(config, game="connect_four", run=folder.name, weights=str(files[index]), num_simulations=num_simulations)
        grade = mark(positions, [answer["action"] for answer in player.moves([list(position.actions) for position in positions])])
        player.evaluator.close()
        minutes = (files[index].stat().st_mtime - first_s) / 60
        rows.append({"minutes": round(minutes, 2), "version": player.weight_version, "error_share": round(grade.error_share, 4)})
        print(rows[-1], flush=True)
    return rows


def draw(rows: list[dict[str, Any]], out: Path, title: str) -> None:
    """The curve with its goal and an anchor."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=120)
    axes.plot([row["minutes"] for row in rows], [100 * row["error_share"] for row in rows], marker="o", color="#1f77b4")
    axes.axhline(100 * UCT_2000, color="#888888", linestyle="--", linewidth=1)
    axes.annotate("UCT, 2,000 simulations", (rows[-1]["minutes"], 100 * UCT_2000), ha="right", va="bottom", color="#666666", fontsize=9)
    axes.axhline(100 * GOAL, color="#2ca02c", linestyle=":", linewidth=1.2)
    axes.annotate("goal", (rows[-1]["minutes"], 100 * GOAL), ha="right", va="bottom", color="#2ca02c", fontsize=9)
    axes.set(xlabel="minutes of azq up", ylabel="moves that lose a result class, %", title=title, ylim=(0, None))
    axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    """Reads the arguments, measures or reuses, draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--num-simulations", type=int, default=400)
    parser.add_argument("--points", type=int, default=16)
    parser.add_argument("--reuse", type=Path)
    given = parser.parse_args()
    rows = json.loads(given.reuse.read_text()) if given.reuse else measure(given.folder, given.num_simulations, given.points)
    given.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, given.out, f"connect four, {given.num_simulations} simulations, 600 solved positions")


if __name__ == "__main__":
    main()
