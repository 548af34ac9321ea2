"""Trains a game three times, by two browser tabs alone, by tabs beside a server's worker and by that worker alone, and compares.

Usage: tabs_and_servers.py GAME FOLDER [--games N] [--points K] [--ways tabs,both,server] [--set SECTION.KEY=VALUE ...]
Prints ledgers, and of some versions of each run the share of graded moves that lose a result class; writes them to FOLDER/GAME.json
and draws FOLDER/GAME.svg. Then `azq samples diff GAME-both --set home=FOLDER` tells whether tabs and worker made games of one kind.
All search alike: no subtree is kept from ply to ply (tabs never keep one), and the limiter holds training to the games that came in.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from bisect import bisect_right
from functools import cache
from pathlib import Path
from typing import Any

from azq import games
from azq.arena.grade import mark
from azq.arena.positions import Position, available, load
from azq.bench.tabs import tab
from azq.config import load as load_config
from azq.console.move import open_player, weight_version
from azq.console.profile import pyplot_of
from azq.host.browser import chromium
from azq.host.fronts import free_port
from azq.process.apart import alone
from azq.process.python import AZQ
from azq.replay.readers import SegmentReader

WAYS = ("tabs", "both", "server")
ALIKE = ("search.reuse_subtree=false", "selfplay.games_in_flight=32", "learner.limiter_slack=4096", "arena.every_s=0", "daemon.port=0")


def train(folder: Path, game: str, way: str, count: int, settings: list[str]) -> dict[str, Any]:
    """Makes the run until so many games are in it; its ledger."""
    port = free_port()
    command = [*AZQ, "up", "--game", game, "--run", f"{game}-{way}", "--until", f"games={count}", "--json"]
    if way != "server":
        command += ["--volunteers", "--port", str(port)]
    tag = ["run.tag=browser"] if way == "tabs" else []
    command += [word for text in (f'home="{folder}"', *ALIKE, *tag, *settings) for word in ("--set", text)]
    with (
        (folder / f"{game}-{way}.log").open("w+") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as up,
    ):
        if way != "server":
            with chromium() as browser, tab(browser, f"http://127.0.0.1:{port}/"), tab(browser, f"http://127.0.0.1:{port}/"):
                up.wait()
        up.wait()
        log.seek(0)
        return dict(json.loads(log.read().splitlines()[-1])["ledger"])


def curve(folder: Path, game: str, way: str, points: int, simulations: int) -> list[dict[str, float]]:
    """Errors of weights spread evenly over the run, with the games that were finished when each was published."""
    run = folder / f"{game}-{way}"
    files = sorted(filter(weight_version, (run / "weights").glob("*.safetensors")), key=weight_version)  # not the networks of browsers
    finished = sorted(event.finished_ms for event in SegmentReader(run / "segments").last(10**9))
    positions = load(game) if available(game) else all_decisions(game)
    config, rows = load_config(overrides=[f'home="{folder}"']), []
    for index in sorted({round((len(files) - 1) * point / (points - 1)) for point in range(points)}):
        player = open_player(config, game=None, run=run.name, weights=str(files[index]), num_simulations=simulations)
        found = mark(positions, [answer["action"] for answer in player.moves([list(position.actions) for position in positions])])
        player.evaluator.close()
        at_games = bisect_right(finished, 1000 * files[index].stat().st_mtime)
        rows.append({"version": player.weight_version, "games": at_games, "error_share": round(found.error_share, 4)})
    return rows


@cache
def all_decisions(name: str) -> tuple[Position, ...]:
    """Every position of a small game in which a move can lose a result class, solved by exhaustion."""
    solved: dict[str, float] = {}
    decisions: dict[str, Position] = {}

    def value(state: games.State, actions: tuple[int, ...]) -> float:
        text = str(state)
        if text not in solved:
            if state.is_terminal():
                return state.returns()[len(actions) % 2]
            moves: dict[tuple[int, ...], float] = {}
            for action in state.legal_actions():
                child = state.clone()
                child.apply_action(action)
                moves[(action,)] = -value(child, (*actions, action))
            solved[text] = max(moves.values())
            if len(set(moves.values())) > 1:
                decisions[text] = Position(actions, moves, "all")
        return solved[text]

    value(games.load(name).new_initial_state(), ())
    return tuple(decisions.values())


def draw(curves: dict[str, list[dict[str, float]]], out: Path, title: str) -> None:
    pyplot = pyplot_of("this")
    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=120)
    for way, rows in curves.items():
        axes.plot([row["games"] for row in rows], [100 * row["error_share"] for row in rows], marker="o", label=way)
    axes.set(xlabel="games", ylabel="graded moves that lose a result class, %", title=title, ylim=(0, None))
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--games", type=int, default=5000)
    parser.add_argument("--points", type=int, default=9)
    parser.add_argument("--num-simulations", type=int, default=16)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--set", action="append", default=[], dest="settings")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for way in given.ways.split(","):
        ledger = train(given.folder, given.game, way, given.games, given.settings)
        found[way] = curve(given.folder, given.game, way, given.points, given.num_simulations)
        print(json.dumps({"way": way, "ledger": ledger, "curve": found[way]}), flush=True)
        (given.folder / f"{given.game}.json").write_text(json.dumps(found))
    draw(found, given.folder / f"{given.game}.svg", f"{given.game} by two tabs, tabs beside a server's worker, and that worker")


if __name__ == "__main__":
    with alone():
        main()
