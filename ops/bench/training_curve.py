"""Draws how a run of any game got stronger: its kept weights against fixed opponents, over the minutes of the run.

Usage: training_curve.py RUN_FOLDER OUT.png --opponents random,uct:200 [--games G] [--num-simulations N] [--points K] [--reuse OUT.json]
Writes the figures beside the picture as JSON; with --reuse the picture is drawn from such a file.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from azq.arena.match import play_match
from azq.arena.player import Ground
from azq.arena.players import make_player
from azq.arena.rating import Z95
from azq.config import load as load_config
from azq.console.move import open_player, weight_version
from azq.wire.messages import LATEST, MatchResult, MatchSpec

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def measure(folder: Path, opponents: list[str], games: int, num_simulations: int, points: int, opening_plies: int) -> list[dict[str, Any]]:
    """Scores of weights spread evenly over the run; minutes are those since its first weights."""
    files = sorted((folder / "weights").glob("*.safetensors"), key=weight_version)
    first_s = files[0].stat().st_mtime
    last = len(files) - 1
    chosen = sorted({round(last * i / max(1, points - 1)) for i in range(points)})
    rows: list[dict[str, Any]] = []
    for index in chosen:
        row: dict[str, Any] = {"minutes": round((files[index].stat().st_mtime - first_s) / 60, 2), "version": weight_version(files[index])}
        for opponent in opponents:
            row[opponent] = score(folder, files[index], opponent, games, num_simulations, opening_plies)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def score(folder: Path, weights: Path, opponent: str, games: int, num_simulations: int, opening_plies: int) -> dict[str, float]:
    """One match of these weights against one opponent."""
    config = load_config(overrides=[f'home="{folder.parent}"'])
    agent = open_player(config, game=None, run=folder.name, weights=str(weights), num_simulations=num_simulations)
    spec = MatchSpec("latest", opponent, games, num_simulations, opening_plies, seed=1)
    engines = [opponent.partition(":")[2]]
    ground = Ground(agent.game, agent.evaluator, agent.search, num_simulations, seed=1, latest=LATEST, slots=games, engines=engines)
    first, second = make_player("latest", ground), make_player(opponent, ground)
    try:
        return figures(play_match(spec, agent.game, first, second))
    finally:
        first.close()
        second.close()
        agent.evaluator.close()


def figures(result: MatchResult) -> dict[str, float]:
    """Share of the points won with the half width of its 95 % interval, and the mean return with its own."""
    games, share = result.games, result.score
    return {
        "games": games,
        "share": round(share, 4),
        "share_95": round(Z95 * math.sqrt(max(share * (1 - share), 0.25 / games) / games), 4),
        "points": round(getattr(result, "points", 0.0), 4),
        "points_95": round(Z95 * getattr(result, "points_se", 0.0), 4),
    }


def draw(rows: list[dict[str, Any]], out: Path, title: str, key: str, label: str, level: float) -> None:
    """One line for each opponent, with its intervals; `level`: the share of equals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=120)
    opponents = [name for name in rows[0] if name not in ("minutes", "version")]
    minutes = [row["minutes"] for row in rows]
    for colour, opponent in zip(COLOURS, opponents, strict=False):
        values = [row[opponent][key] for row in rows]
        margins = [row[opponent][f"{key}_95"] for row in rows]
        axes.errorbar(minutes, values, yerr=margins, marker="o", capsize=3, color=colour, label=f"against {opponent}")
    axes.set(xlabel="minutes of azq up", ylabel=label, title=title)
    if key == "share":
        axes.set_ylim(0, 1.02)
        axes.axhline(level, color="#888888", linestyle="--", linewidth=1)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    """Reads the arguments, measures or reuses, draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--opponents", default="random")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--num-simulations", type=int, default=64)
    parser.add_argument("--opening-plies", type=int, default=2)
    parser.add_argument("--points", type=int, default=5)
    parser.add_argument("--level", type=float, default=0.5, help="share of equals, 1 / n with n seats")
    parser.add_argument("--title", default="")
    parser.add_argument("--key", choices=("share", "points"), default="share")
    parser.add_argument("--label", default="share of points won")
    parser.add_argument("--reuse", type=Path)
    given = parser.parse_args()
    opponents = given.opponents.split(",")
    rows = (
        json.loads(given.reuse.read_text())
        if given.reuse
        else measure(given.folder, opponents, given.games, given.num_simulations, given.points, given.opening_plies)
    )
    given.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(
        rows,
        given.out,
        given.title or f"{given.folder.name}, {given.num_simulations} simulations a move",
        given.key,
        given.label,
        given.level,
    )


if __name__ == "__main__":
    main()
