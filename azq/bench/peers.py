"""azq beside what a user would pick instead, one after the other on the same machine, in rounds."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from azq.bench.plan import PEERS
from azq.bench.selfplay import bench_selfplay
from azq.config import Config
from azq.errors import EvaluationTimeout, MissingExtra

PACKAGES = {"pgx": ("jax", "pgx", "mctx"), "openspiel": ("pyspiel", "open_spiel")}
LIMIT_S = 180.0  # beyond what is measured: compiling takes its time
ROUNDS = 3
SCRIPT = Path(os.environ.get("AZQ_PEERS_SCRIPT", Path(__file__).parents[2] / "ops" / "bench" / "peers.py"))  # a wheel has it not


def bench_peers(config: Config, *, seconds: float) -> dict[str, Any]:
    """Medians over rounds of simulations per CPU-second, and azq's ratio to each peer."""
    rates: dict[str, list[float]] = {name: [] for name in ("azq", *PEERS)}
    for _ in range(ROUNDS):
        rates["azq"].append(bench_selfplay(config, seconds=seconds, game="connect_four", evaluator="stream")["simulations_per_cpu_s"])
        for peer in PEERS:
            rates[peer].append(_peer(peer, seconds))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {f"azq_over_{peer}": round(medians["azq"] / medians[peer], 2) for peer in PEERS}
    return {**{f"{name}_simulations_per_cpu_s": value for name, value in medians.items()}, **ratios}


def missing(name: str) -> str:
    """Why a peer cannot be measured here; empty where it can."""
    if not SCRIPT.is_file():
        return f"{SCRIPT.name} is not installed; run from a checkout"
    wanted = PACKAGES[name]
    found = subprocess.run([_python(), "-c", f"import {', '.join(wanted)}"], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else f"{' and '.join(wanted)} not installed; pip install 'azq[bench]'"


def figures(name: str, seconds: float, limit_s: float, **setting: int | str) -> dict[str, Any]:
    """One peer in a process of its own; `AZQ_PEERS_PYTHON` names an interpreter that has the extra, where this one has not.

    `setting` are the script's options. Raises `MissingExtra` where it does not run, `EvaluationTimeout` where it does not end.
    """
    device = str(setting.pop("device", "cpu")).partition(":")[0]
    options = [word for key, value in setting.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    command = [_python(), str(SCRIPT), name, str(seconds), *options, "--device", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise EvaluationTimeout(f"peer {name} was ended after {limit_s:.0f} s without an answer") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise MissingExtra(f"peer {name} does not run here ({reason}); install the extra: pip install 'azq[bench]'")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _peer(name: str, seconds: float) -> float:
    return float(figures(name, seconds, LIMIT_S + seconds)["simulations_per_cpu_s"])


def _python() -> str:
    return os.environ.get("AZQ_PEERS_PYTHON", sys.executable)
