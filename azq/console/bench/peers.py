"""azq beside what a user would pick instead, one after the other on the same machine, in rounds."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from azq.config import Config
from azq.console.bench.selfplay import bench_selfplay
from azq.errors import MissingExtra

PEERS = ("pgx", "openspiel")
ROUNDS = 3
SCRIPT = Path(__file__).parents[3] / "ops" / "bench" / "peers.py"


def bench_peers(config: Config, *, seconds: float) -> dict[str, Any]:
    """Medians over rounds of simulations per CPU-second, and azq's ratio to each peer."""
    figures: dict[str, list[float]] = {name: [] for name in ("azq", *PEERS)}
    for _ in range(ROUNDS):
        figures["azq"].append(bench_selfplay(config, seconds=seconds, game="connect_four", evaluator="stream")["simulations_per_cpu_s"])
        for peer in PEERS:
            figures[peer].append(_peer(peer, seconds))
    medians = {name: statistics.median(values) for name, values in figures.items()}
    ratios = {f"azq_over_{peer}": round(medians["azq"] / medians[peer], 2) for peer in PEERS}
    return {**{f"{name}_simulations_per_cpu_s": value for name, value in medians.items()}, **ratios}


def _peer(name: str, seconds: float) -> float:
    """One peer in a process of its own; `AZQ_PEERS_PYTHON` names an interpreter that has the extra, where this one has not."""
    python = os.environ.get("AZQ_PEERS_PYTHON", sys.executable)
    done = subprocess.run([python, str(SCRIPT), name, str(seconds)], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise MissingExtra(f"peer {name} does not run here ({reason}); install the extra: pip install 'azq[bench]'")
    return float(json.loads(done.stdout.splitlines()[-1])["simulations_per_cpu_s"])
