"""What a play request each second or two costs a run that trains: games and CPU-seconds a second, with requests and without, in turns.

Usage: moves_beside_training.py [--game connect_four] [--pairs 4] [--seconds 30] [--every 1.5] [--num-simulations 400]
A request asks `POST /v1/runs/{run}/moves` for one position; each turn's figures are printed, last the medians of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from azq.bus.redis import RedisBus
from azq.client import Client
from azq.config import load
from azq.console.remote import client_of
from azq.host.brokers import open_control
from azq.host.fronts import free_port
from azq.ledger import Ledger
from azq.metrics import CPU_S
from azq.process.apart import alone
from azq.process.proc import usage
from azq.process.python import AZQ
from azq.status.observe import read_workers
from azq.waiting import until

RUN = "asked"
ROLES = ("selfplay", "inference", "learner", "daemon")
WARM_S = 240.0


class Looks:
    """What a run did until a moment."""

    def __init__(self, settings: list[str]) -> None:
        client = open_control(load(None, settings))[1]
        self._bus, self._ledger = RedisBus(client), Ledger(client)

    def games(self) -> int:
        return self._ledger.counts(RUN).finished

    def now(self) -> dict[str, float]:
        beats = read_workers(self._bus)
        pids = {role: {beat.pid for beat in beats if beat.role == role} for role in ROLES}
        spent = {role: sum(usage(pid).get(CPU_S, 0.0) for pid in pids[role]) for role in ROLES}  # with children: they search
        return {"at": time.monotonic(), "games": self.games(), **spent}


def ask(client: Client, every_s: float, simulations: int, over: threading.Event, took: list[float]) -> None:
    """Positions a few random moves from the start, at a steady pace."""
    luck, due = random.Random(1), time.monotonic()
    while not over.wait(max(0.0, due - time.monotonic())):
        begun = time.monotonic()
        client.moves(RUN, [{"actions": [luck.randrange(7) for _ in range(luck.randrange(6))]}], num_simulations=simulations)
        took.append(time.monotonic() - begun)
        due = max(due + every_s, time.monotonic())


def turn(looks: Looks, client: Client | None, given: argparse.Namespace) -> dict[str, Any]:
    """The figures of so many seconds, per second, with requests where there is a client."""
    over, took = threading.Event(), list[float]()
    asking = threading.Thread(target=ask, args=(client, given.every, given.num_simulations, over, took))
    before = looks.now()
    if client is not None:
        asking.start()
    time.sleep(given.seconds)
    over.set()
    if client is not None:
        asking.join()
    after = looks.now()
    seconds = after["at"] - before["at"]
    rates = {name: round((after[name] - before[name]) / seconds, 4) for name in ("games", *ROLES)}
    return {"asked": len(took), "answer_s": round(statistics.median(took), 3) if took else None, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="connect_four")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=1.5)
    parser.add_argument("--num-simulations", type=int, default=400)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as folder:
        settings = [
            f'home="{folder}"',
            f"daemon.port={free_port()}",
            "arena.every_s=0",
            "learner.min_window=2000",
            "selfplay.games_in_flight=128",
        ]
        command = [*AZQ, "up", "--game", given.game, "--run", RUN, "--json", *(word for text in settings for word in ("--set", text))]
        with (Path(folder) / "log").open("w") as log:
            up = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            measure(settings, given)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)


def measure(settings: list[str], given: argparse.Namespace) -> None:
    def begun() -> Looks | None:
        with contextlib.suppress(Exception):
            looks = Looks(settings)
            return looks if looks.games() > 150 else None
        return None

    looks = until(begun, "no games were finished", WARM_S)
    pairs = []
    with client_of(load(None, settings)) as client:
        for _ in range(given.pairs):
            pairs.append([turn(looks, each, given) for each in (None, client)])
            print(json.dumps(pairs[-1]), flush=True)
    ratios = {name: [busy[name] / max(1e-9, quiet[name]) for quiet, busy in pairs] for name in ("games", *ROLES)}
    cost = [sum(busy[role] for role in ROLES) - sum(quiet[role] for role in ROLES) for quiet, busy in pairs]
    print(
        json.dumps(
            {name: round(statistics.median(found), 3) for name, found in ratios.items()} | {"cores_more": [round(each, 3) for each in cost]}
        )
    )


if __name__ == "__main__":
    with alone():
        main()
