"""The REST interface under load: a real daemon process before a simulated fleet, asked from another process.

The load is an open loop: requests leave on a schedule, whatever became of those before. A latency counts from the moment the schedule
names, so a stall is felt by every request that it delays.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx2

from azq.bench.daemon import beating, populate, run_name
from azq.bench.rig import READY_S, answer_of, changed, child, own_brokers, percentile, running
from azq.config import Config
from azq.config.access import with_own_token
from azq.host.fronts import free_port
from azq.process.proc import cpu_s
from azq.process.python import AZQ
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec
from azq.process.webclient import open_web
from azq.waiting import until

STOP_S = 60.0
#: route -> share of the requests
MIX = {
    "/v1/runs": 0.12,
    "/v1/runs/{run}/status": 0.25,
    "/v1/runs/{run}/ledger": 0.18,
    "/v1/workers?limit=100": 0.2,
    "/v1/workers": 0.02,
    "/v1/jobs?run={run}&limit=100": 0.13,
    "/healthz": 0.1,
}
METRICS = "/metrics"
METRICS_EVERY_S = 5.0  # as ops/prometheus/prometheus.yml
CONNECTIONS = 32
TOKEN_VARIABLE = "AZQ_DAEMON__TOKEN"  # no argument, which others could read
PATIENCE_S = 10.0


def bench_rest(config: Config, *, workers: int, runs: int, rate: float, seconds: float) -> dict[str, Any]:
    """Latencies in ms from the moment each request was due, by route and over all; CPU of daemon and broker."""
    with own_brokers(config) as (config, brokers):
        home, port = config.home, free_port()
        populate(brokers.control, config.run_sections(), runs=runs, workers=workers)
        served = changed(config, daemon={"host": "127.0.0.1", "port": port})
        daemon = ChildSpec("daemon", [*AZQ, "daemon"], home / "daemon.log")
        with beating(config, home, workers), running([daemon], child_environment(served, "daemon")) as pids:
            url = f"http://127.0.0.1:{port}"
            until(lambda: _ready(url), f"the daemon does not answer, see {home / 'daemon.log'}", READY_S)
            before = (cpu_s(pids), cpu_s(brokers.pids[:1]))
            token = with_own_token(served).daemon.token.get_secret_value()
            asking = child(ask, {**os.environ, TOKEN_VARIABLE: token}, url=url, rate=rate, seconds=seconds, runs=runs)
            found = answer_of(asking, seconds + STOP_S)
            spent = (cpu_s(pids) - before[0], cpu_s(brokers.pids[:1]) - before[1])
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


def _ready(url: str) -> bool:
    try:
        with open_web(url, timeout_s=5.0) as http:
            return http.get(f"{url}/readyz").status_code == 200
    except httpx2.HTTPError:
        return False


@dataclass(slots=True)
class RouteSeen:
    """What one route answered."""

    latencies_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)  # of leaving: this process's own share of the latency
    errors: int = 0
    bytes: int = 0


def ask(url: str, rate: float, seconds: float, runs: int) -> dict[str, dict[str, Any]]:
    """Makes the load, in a process of its own; what each route answered."""
    seen = asyncio.run(load(url, schedule(rate, seconds, [run_name(index) for index in range(runs)], seed=0)))
    return {route: asdict(one) for route, one in seen.items()}


def schedule(rate: float, seconds: float, runs: list[str], seed: int) -> list[tuple[float, str, str]]:
    """When to ask for what: (seconds from the start, route, path), in order."""
    luck = random.Random(seed)
    routes = luck.choices(list(MIX), list(MIX.values()), k=round(rate * seconds))
    asked = [(index / rate, route, route.format(run=luck.choice(runs))) for index, route in enumerate(routes)]
    count = max(1, round(seconds / METRICS_EVERY_S))
    scrapes = [(seconds * (index + 0.5) / count, METRICS, METRICS) for index in range(count)]
    return sorted(asked + scrapes)


async def load(url: str, plan: list[tuple[float, str, str]]) -> dict[str, RouteSeen]:
    """Asks as planned, over connections that are kept."""
    seen: dict[str, RouteSeen] = {}
    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=60.0)
    headers = {"Authorization": f"Bearer {os.environ[TOKEN_VARIABLE]}"}
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=PATIENCE_S, headers=headers, trust_env=False) as client:
        await asyncio.gather(*(client.get("/healthz") for _ in range(CONNECTIONS)))
        start = time.perf_counter() + 0.1
        tasks = []
        for offset, route, path in plan:
            await asyncio.sleep(start + offset - time.perf_counter())
            tasks.append(asyncio.create_task(_ask(client, path, start + offset, seen.setdefault(route, RouteSeen()))))
        await asyncio.gather(*tasks)
    return seen


async def _ask(client: httpx2.AsyncClient, path: str, due_s: float, seen: RouteSeen) -> None:
    seen.late_ms.append(1000 * (time.perf_counter() - due_s))
    try:
        answer = await client.get(path)
        seen.errors += answer.status_code != 200
        seen.bytes += len(answer.content)
    except httpx2.HTTPError:
        seen.errors += 1
    seen.latencies_ms.append(1000 * (time.perf_counter() - due_s))
