"""Requests and replies over the data plane: what one costs, and what one broker carries."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from azq.bench.fronted import listening, reached
from azq.bench.rig import percentile
from azq.config import Config
from azq.errors import EvaluationTimeout
from azq.host.brokers import Brokers
from azq.host.roles import in_roles
from azq.process.proc import cpu_s
from azq.process.start import child_environment
from azq.wire.connect import connect
from azq.wire.keys import Role

WARM_UP_S = 0.5
PATIENCE_S = 30.0


def bench_bus(
    config: Config,
    *,
    seconds: float,
    clients: int = 2,
    consumers: int = 1,
    sizes: tuple[int, ...] = (16 * 1024, 64 * 1024),
    tls: bool = False,
) -> dict[str, Any]:
    """Latency and CPU of a request in one process; then, for each size, requests and leaves a second between processes of their own.

    `*_broker_limit_requests_per_s` is what a broker's CPU for one request leaves room for in a second: one whose core is full
    carries no more. `tls`: everybody comes through the brokers' fronts, as from other machines.
    """
    from azq.bench.forward import bench_bus as measure

    with (
        tempfile.TemporaryDirectory(prefix="azq-bench-") as folder,
        Brokers(config, Path(folder), listening(tls)) as brokers,
        reached(brokers, config, Path(folder)) as (config, fronts),
    ):
        figures: dict[str, Any] = measure(config.broker.data_planes[0], seconds=seconds)
        figures |= {"clients": clients, "consumers": consumers, "brokers": len(config.broker.data_planes)}
        for size in sizes:
            found = _carried(config, seconds, clients, consumers, size, fronts)
            figures |= {f"{size // 1024}kib_{name}": value for name, value in found.items()}
    return figures


def _carried(config: Config, seconds: float, clients: int, consumers: int, size: int, fronts: Mapping[str, int]) -> dict[str, float]:
    asking = [_party(config, "ask", f"client-{number}", size) for number in range(clients)]
    answering = [_party(config, "answer", f"consumer-{number}", size) for number in range(consumers)]
    start_s = _start([*asking, *answering], seconds)
    end_s, pause = start_s + seconds, threading.Event()
    pause.wait(start_s - time.monotonic())
    before_s, fronts_before_s = _brokers_cpu_s(config), cpu_s(fronts.values())
    pause.wait(end_s - time.monotonic())
    broker_s, fronts_s = _brokers_cpu_s(config) - before_s, cpu_s(fronts.values()) - fronts_before_s
    asked, answered = [_result(process) for process in asking], [_result(process) for process in answering]
    latencies_ms = [latency for one in asked for latency in one["latencies_ms"]]
    if not latencies_ms:
        raise EvaluationTimeout(f"no request of {size} bytes was answered within {seconds:g} s; is the machine overloaded?")
    requests, leaves = len(latencies_ms), asked[0]["leaves"]
    return {
        "requests_per_s": requests / seconds,
        "leaves_per_s": requests * leaves / seconds,
        "p50_ms": percentile(latencies_ms, 0.5),
        "p99_ms": percentile(latencies_ms, 0.99),
        "client_cpu_us_per_request": 1e6 * sum(one["cpu_s"] for one in asked) / requests,
        "consumer_cpu_us_per_request": 1e6 * sum(one["cpu_s"] for one in answered) / requests,
        "broker_cpu_us_per_request": 1e6 * broker_s / requests,
        **({"front_cpu_us_per_request": 1e6 * fronts_s / requests} if fronts else {}),
        "broker_limit_requests_per_s": requests / broker_s,
        "broker_limit_leaves_per_s": requests * leaves / broker_s,
    }


def _party(config: Config, role: str, name: str, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "azq.bench.bus_party", role, name, "--bytes", str(size)]
    of: Role = "worker" if role == "ask" else "inference"
    return subprocess.Popen(
        command, env=child_environment(in_roles(config)(of), of), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _start(processes: Sequence[subprocess.Popen[str]], seconds: float) -> float:
    """Waits until all are ready and tells them what counts; returns when that begins."""
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # of one that died: nothing, and `_result` says so
    start_s = time.monotonic() + WARM_UP_S
    for process in processes:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{start_s} {start_s + seconds}\n")
            process.stdin.flush()
    return start_s


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        raise EvaluationTimeout(f"a process of the benchmark ended with exit code {process.returncode}; its last words are above")
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def _brokers_cpu_s(config: Config) -> float:
    """CPU-seconds of all data planes so far."""
    used_s = 0.0
    for url in config.broker.data_planes:
        with connect(url) as client:
            facts = client.info("cpu")
        used_s += float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])
    return used_s
