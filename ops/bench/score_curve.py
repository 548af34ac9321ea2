"""Draws how a run of a game for one got better: mean scores of its kept weights over its minutes, beside players that never change.

Usage: score_curve.py RUN_FOLDER OUT.png --baselines rule,random [--games G] [--num-simulations N] [--points K] [--reuse OUT.json]
Writes the figures beside the picture as JSON; with --reuse the picture is drawn from such a file. Of 2048 it counts the largest tiles too.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

from azq import games
from azq.arena.match import mean_and_error, play_on
from azq.arena.player import Ground, Player, position
from azq.arena.players import make_player
from azq.arena.rating import Z95
from azq.config import load as load_config
from azq.console.move import open_player, weight_version
from azq.notation.units import unit
from azq.wire.messages import LATEST

TILES = (512, 1024, 2048)


def measure(folder: Path, baselines: list[str], count: int, num_simulations: int, points: int) -> list[dict[str, Any]]:
    """The baselines, then weights spread evenly over the run; minutes are those since its first weights."""
    files = sorted((folder / "weights").glob("*.safetensors"), key=weight_version)
    last = len(files) - 1
    config = load_config(overrides=[f'home="{folder.parent}"'])
    rows: list[dict[str, Any]] = []
    for path in sorted({round(last * i / max(1, points - 1)) for i in range(points)}):
        agent = open_player(config, game=None, run=folder.name, weights=str(files[path]), num_simulations=num_simulations)
        ground = Ground(agent.game, agent.evaluator, agent.search, num_simulations, seed=1, latest=LATEST, slots=count)
        for name in [*([] if rows else baselines), "latest"]:
            minutes = round((files[path].stat().st_mtime - files[0].stat().st_mtime) / 60, 2) if name == "latest" else None
            version = weight_version(files[path]) if name == "latest" else 0
            rows.append({"player": name, "minutes": minutes, "version": version} | alone(agent.game, make_player(name, ground), count))
            print(json.dumps(rows[-1]), flush=True)
        agent.evaluator.close()
    return rows


def alone(game: games.Game, player: Player, count: int) -> dict[str, Any]:
    """Mean score of so many games with the half width of its 95 % interval, and the share of them with each tile."""
    began = time.process_time()
    ends = [position(game, history) for history in play_on(game, player, [[] for _ in range(count)], seed=1)]
    scores = [unit(game).told(end.returns()[0]) for end in ends]
    mean, error = mean_and_error(scores, 1)
    largest = [max(map(int, re.findall(r"\d+", end.notation().split(" ")[0]))) for end in ends] if game.name == "2048" else []
    return {
        "games": count,
        "score": round(mean, 1),
        "score_95": round(Z95 * error, 1),
        **{str(tile): sum(most >= tile for most in largest) / count for tile in TILES if largest},
        "cpu_s": round(time.process_time() - began, 1),
    }


def draw(rows: list[dict[str, Any]], out: Path, title: str) -> None:
    """The weights as a line with its intervals, each baseline as a level."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=120)
    weights = [row for row in rows if row["version"]]
    minutes, scores, margins = ([row[key] for row in weights] for key in ("minutes", "score", "score_95"))
    axes.errorbar(minutes, scores, yerr=margins, marker="o", capsize=3, label="weights")
    for number, row in enumerate((row for row in rows if not row["version"]), 1):
        axes.axhspan(row["score"] - row["score_95"], row["score"] + row["score_95"], color=f"C{number}", alpha=0.2)
        axes.axhline(row["score"], color=f"C{number}", linestyle="--", label=row["player"])
    axes.set(xlabel="minutes of azq up", ylabel="mean score", title=title, ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    """Reads the arguments, measures or reuses, draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--baselines", default="rule,random")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--num-simulations", type=int, default=16)
    parser.add_argument("--points", type=int, default=6)
    parser.add_argument("--title", default="")
    parser.add_argument("--reuse", type=Path)
    given = parser.parse_args()
    kept = given.reuse and json.loads(given.reuse.read_text())
    rows = kept or measure(given.folder, given.baselines.split(","), given.games, given.num_simulations, given.points)
    given.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, given.out, given.title or f"{given.folder.name}, {given.num_simulations} simulations a move")


if __name__ == "__main__":
    main()
