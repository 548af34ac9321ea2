"""Draws how a run of any game got stronger: its kept weights against fixed opponents, over the minutes of the run.

Usage: training_curve.py RUN_FOLDER OUT.png --opponents random,uct:200 [--games G] [--num-simulations N] [--points K]
Writes the figures beside the picture as JSON. In a game for one the scores of both are drawn, the opponent's as a level.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from azq.config import load as load_config
from azq.console.move import weight_version
from azq.console.play import Seating, game_named, match_players
from azq.stats import Z95


def measure(folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each of the weights that are spread evenly over the run; minutes are those since its first weights."""
    files = sorted((folder / "weights").glob("*.safetensors"), key=weight_version)
    last, rows = len(files) - 1, list[dict[str, Any]]()
    for weights in (files[index] for index in sorted({round(last * i / max(1, given.points - 1)) for i in range(given.points)})):
        minutes = (weights.stat().st_mtime - files[0].stat().st_mtime) / 60
        row = {"minutes": round(minutes, 2), "version": weight_version(weights)}
        rows.append(row | {opponent: played(folder, weights, opponent, given) for opponent in given.opponents.split(",")})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def played(folder: Path, weights: Path, opponent: str, given: argparse.Namespace) -> dict[str, Any]:
    """One match of these weights: the figures of `azq match`, and half the width of the share's 95 % interval."""
    config = load_config(overrides=[f'home="{folder.parent}"'])
    seating = Seating(game_named(config, None, folder.name), folder.name, str(weights), given.num_simulations, seed=1)
    found = match_players(config, seating, "latest", opponent, given.games, given.opening_plies)
    share, games = found["share"], found["games"]
    return found | {"share_95": round(Z95 * math.sqrt(max(share * (1 - share), 0.25 / games) / games), 4)}


def draw(rows: list[dict[str, Any]], out: Path, title: str, key: str) -> None:
    """One line for each opponent, with its intervals; of shares the level of equals, of scores that of the opponent."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=120)
    opponents = [name for name in rows[0] if name not in ("minutes", "version")]
    for number, opponent in enumerate(opponents):
        values, margins = ([row[opponent][f"{key}{end}"] for row in rows] for end in ("", "_95"))
        axes.errorbar([row["minutes"] for row in rows], values, yerr=margins, marker="o", capsize=3, label=f"against {opponent}")
        if key == "points" and "second_points" in rows[0][opponent]:
            axes.axhline(rows[-1][opponent]["second_points"], color=f"C{number}", linestyle="--", linewidth=1, label=opponent)
    axes.set(xlabel="minutes of azq up", ylabel=f"{key} won", title=title)
    if key == "share":
        axes.set_ylim(0, 1.02)
        axes.axhline(1 / max(2, rows[0][opponents[0]]["seats"]), color="#888888", linestyle="--", linewidth=1)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    """Reads the arguments, measures, draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--opponents", default="random")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--num-simulations", type=int, default=64)
    parser.add_argument("--opening-plies", type=int, default=2)
    parser.add_argument("--points", type=int, default=5)
    parser.add_argument("--title", default="")
    parser.add_argument("--key", choices=("share", "points"), default="share")
    given = parser.parse_args()
    rows = measure(given.folder, given)
    given.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, given.out, given.title or f"{given.folder.name}, {given.num_simulations} simulations a move", given.key)


if __name__ == "__main__":
    main()
