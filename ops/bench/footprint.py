"""A cold `azq up` in a fresh folder: seconds to the first finished game, and the memory of the self-play worker's processes.

Usage: footprint.py [--seconds S] [--set section.key=value ...]     prints one JSON line
Memory is the sum of proportional set sizes (shared pages counted once) of the Celery parent and its children.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from azq.bus.redis import RedisBus
from azq.config import load
from azq.errors import AzqError
from azq.host import brokers
from azq.ledger import Ledger
from azq.process.apart import alone
from azq.process.proc import children
from azq.process.python import AZQ
from azq.status.observe import read_workers
from azq.wire.connect import connect

RUN = "footprint"


def first_game_s(home: Path, begun: float, within_s: float = 120.0) -> float:
    """Seconds until the ledger holds a finished game."""
    while time.monotonic() - begun < within_s:
        try:
            config = brokers.resolve(load(overrides=[f'home="{home}"']))
            with connect(config.broker.control_url) as client:
                if Ledger(client).counts(RUN).finished:
                    return time.monotonic() - begun
        except AzqError:
            pass  # not up yet
        threading.Event().wait(0.1)
    raise SystemExit("no game was finished in time")


def worker_mb(home: Path) -> dict[str, float]:
    """Proportional set sizes of the self-play worker and its children, in MB."""
    config = brokers.resolve(load(overrides=[f'home="{home}"']))
    with connect(config.broker.control_url) as client:
        (pid,) = [beat.pid for beat in read_workers(RedisBus(client)) if beat.role == "selfplay"]
    return {"parent": pss_mb(pid), "children": sum(pss_mb(child) for child in children(pid))}


def pss_mb(pid: int) -> float:
    """Proportional set size of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Starts, measures, stops."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    given = parser.parse_args()
    settings = [part for text in [*given.overrides, "daemon.port=0"] for part in ("--set", text)]
    with tempfile.TemporaryDirectory(prefix="azq-footprint-") as folder:
        home = Path(folder)
        begun = time.monotonic()
        command = [*AZQ, "up", "--run", RUN, "--json", *settings]
        up = subprocess.Popen(command, env={**os.environ, "AZQ_HOME": str(home)}, cwd=home, stdout=subprocess.DEVNULL)
        try:
            first_s = first_game_s(home, begun)
            threading.Event().wait(max(0.0, given.seconds - (time.monotonic() - begun)))
            memory = worker_mb(home)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(90)
    print(json.dumps({"first_game_s": round(first_s, 2), **{f"worker_{name}_mb": round(mb, 1) for name, mb in memory.items()}}))


if __name__ == "__main__":
    with alone():
        main()
