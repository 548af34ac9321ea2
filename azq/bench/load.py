"""Open-loop load on the REST interface: requests leave on a schedule, whatever became of those before.

A latency counts from the moment the schedule names, so a stall is felt by every request that it delays. Run as a module it is
the process that makes the load; what it measured is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from dataclasses import dataclass, field

import httpx2

from azq.process.start import run_main

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


@dataclass(slots=True)
class Seen:
    """What one route answered."""

    latencies_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)  # of leaving: this process's own share of the latency
    errors: int = 0
    bytes: int = 0


def schedule(rate: float, seconds: float, runs: list[str], seed: int) -> list[tuple[float, str, str]]:
    """When to ask for what: (seconds from the start, route, path), in order."""
    luck = random.Random(seed)
    routes = luck.choices(list(MIX), list(MIX.values()), k=round(rate * seconds))
    asked = [(index / rate, route, route.format(run=luck.choice(runs))) for index, route in enumerate(routes)]
    count = max(1, round(seconds / METRICS_EVERY_S))
    scrapes = [(seconds * (index + 0.5) / count, METRICS, METRICS) for index in range(count)]
    return sorted(asked + scrapes)


async def load(url: str, plan: list[tuple[float, str, str]]) -> dict[str, Seen]:
    """Asks as planned, over connections that are kept."""
    seen: dict[str, Seen] = {}
    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=60.0)
    headers = {"Authorization": f"Bearer {os.environ[TOKEN_VARIABLE]}"}
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=PATIENCE_S, headers=headers) as client:
        await asyncio.gather(*(client.get("/healthz") for _ in range(CONNECTIONS)))
        start = time.perf_counter() + 0.1
        tasks = []
        for offset, route, path in plan:
            await asyncio.sleep(start + offset - time.perf_counter())
            tasks.append(asyncio.create_task(_ask(client, path, start + offset, seen.setdefault(route, Seen()))))
        await asyncio.gather(*tasks)
    return seen


async def _ask(client: httpx2.AsyncClient, path: str, due_s: float, seen: Seen) -> None:
    seen.late_ms.append(1000 * (time.perf_counter() - due_s))
    try:
        answer = await client.get(path)
        seen.errors += answer.status_code != 200
        seen.bytes += len(answer.content)
    except httpx2.HTTPError:
        seen.errors += 1
    seen.latencies_ms.append(1000 * (time.perf_counter() - due_s))


def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--runs", nargs="+", required=True)
    asked = parser.parse_args()
    seen = asyncio.run(load(asked.url, schedule(asked.rate, asked.seconds, asked.runs, seed=0)))
    figures = {
        route: {"latencies_ms": one.latencies_ms, "late_ms": one.late_ms, "errors": one.errors, "bytes": one.bytes}
        for route, one in seen.items()
    }
    print(json.dumps(figures), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main("load", _main))
