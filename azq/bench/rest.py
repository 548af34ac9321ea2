"""The REST interface under load: a real daemon process before a simulated fleet, asked from another process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from azq.bench import fleet
from azq.bench.load import TOKEN_VARIABLE
from azq.bench.rig import READY_S, apart, percentile
from azq.config import Config
from azq.config.own_token import with_own_token
from azq.errors import EvaluationTimeout
from azq.host.brokers import Brokers
from azq.process.proc import cpu_s
from azq.waiting import until

STOP_S = 60.0


def bench_rest(config: Config, *, workers: int, runs: int, rate: float, seconds: float) -> dict[str, Any]:
    """Latencies in ms from the moment each request was due, by route and over all; CPU of daemon and broker."""
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as folder, Brokers(apart(config, Path(folder)), Path(folder)) as brokers:
        home, config = Path(folder), brokers.apply(apart(config, Path(folder)))
        fleet.populate(brokers.control, config.run_sections(), runs=runs, workers=workers)
        port = _free_port()
        served = config.model_copy(update={"daemon": config.daemon.model_copy(update={"host": "127.0.0.1", "port": port})})
        command = [sys.executable, "-m", "azq", "daemon"]
        with fleet.beating(config, home, workers), fleet.child(served, command, home / "daemon.log") as daemon:
            url = f"http://127.0.0.1:{port}"
            until(lambda: _ready(url), f"the daemon does not answer, see {home / 'daemon.log'}", READY_S)
            before = (cpu_s([daemon.pid]), cpu_s(brokers.pids[:1]))
            token = with_own_token(served).daemon.token.get_secret_value()
            found = _load(url, token, rate, seconds, [fleet.run_name(index) for index in range(runs)])
            spent = (cpu_s([daemon.pid]) - before[0], cpu_s(brokers.pids[:1]) - before[1])
    return summary(found, spent) | {"workers": workers, "runs": runs, "rate": rate}


def summary(found: Mapping[str, Mapping[str, Any]], spent: tuple[float, float]) -> dict[str, Any]:
    """The figures of what the load saw; `spent` are CPU-seconds of daemon and broker."""
    reads = [latency for one in found.values() for latency in one["latencies_ms"]]
    late = [value for one in found.values() for value in one["late_ms"]]
    return {
        "requests": len(reads),
        "errors": sum(one["errors"] for one in found.values()),
        **_percentiles(reads),
        "generator_late_p99_ms": round(percentile(late, 0.99), 2),
        "daemon_cpu_s": round(spent[0], 2),
        "daemon_cpu_ms_per_request": round(1000 * spent[0] / len(reads), 2),
        "broker_cpu_s": round(spent[1], 2),
        "routes": {
            route: {
                "requests": len(one["latencies_ms"]),
                "errors": one["errors"],
                "mean_bytes": round(one["bytes"] / len(one["latencies_ms"])),
                **_percentiles(one["latencies_ms"]),
            }
            for route, one in sorted(found.items())
        },
    }


def _percentiles(latencies_ms: list[float]) -> dict[str, float]:
    shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: round(percentile(latencies_ms, share), 2) for name, share in shares.items()}


def _load(url: str, token: str, rate: float, seconds: float, runs: list[str]) -> dict[str, Any]:
    options = ["--url", url, "--rate", str(rate), "--seconds", str(seconds), "--runs", *runs]
    command = [sys.executable, "-m", "azq.bench.load", *options]
    env = {**os.environ, TOKEN_VARIABLE: token}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds + STOP_S, check=False)
    if done.returncode:
        raise EvaluationTimeout(f"the load could not be made: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
