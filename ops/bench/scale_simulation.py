"""The fleet of `scale_plan.py` as a queueing model: do its parts reach what the arithmetic says once requests wait for each other?

Self-play workers (one core, two groups of games in turn), data brokers (one core each: a request, then its reply; chosen as azq's clients
choose them) and GPUs (batches of whole requests, one at a time), with the measured service times. Only the searches' durations vary.

    ops/bench/scale_simulation.py [FIGURES.toml] [--workers N] [--brokers N] [--seconds S]
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azq.cluster.arithmetic import KIB, microseconds, plan, read_figures
from azq.wire.shards import client_shards

GROUPS = 2
BATCH_REQUESTS = 2  # requests in a bucket of 8,192
SPREAD = 0.2  # of a search's duration, either way
SETTLE = 0.25  # share of the simulated time that does not count


@dataclass(slots=True)
class Server:
    """One thing that does one piece of work at a time, in order."""

    free_s: float = 0.0
    busy_s: float = 0.0

    def serve(self, now_s: float, work_s: float) -> float:
        """When a piece of work that comes now is done."""
        self.free_s = max(now_s, self.free_s) + work_s
        self.busy_s += work_s
        return self.free_s


@dataclass(frozen=True, slots=True)
class Times:
    """Service times of one request, seconds."""

    search_s: float
    client_s: float
    broker_in_s: float
    broker_out_s: float
    gpu_s: float


def times_of(figures: Mapping[str, float]) -> Times:
    """Measured service times for the plan's request; a broker's work is parted by the bytes that come and go."""
    leaves = figures["leaves_per_request"]
    request = leaves * figures["request_bytes_per_leaf"]
    broker_s, client_s = (microseconds(figures, party, request) / 1e6 for party in ("broker", "client"))
    incoming = figures["request_bytes_per_leaf"] / (figures["request_bytes_per_leaf"] + figures["reply_bytes_per_leaf"])
    search_s = leaves * figures["search_cores_per_gpu"] / figures["evaluations_per_s_per_gpu"]
    gpu_s = leaves / figures["evaluations_per_s_per_gpu"]
    return Times(search_s, client_s, broker_s * incoming, broker_s * (1 - incoming), gpu_s)


@dataclass(slots=True)
class Fleet:
    """The model: events in order of time; `answered` counts requests after the settling."""

    times: Times
    workers: list[Server]
    brokers: list[Server]
    gpus: list[Server]
    homes: list[int]  # the broker of each worker
    luck: random.Random
    end_s: float
    answered: int = 0
    batches: int = 0
    waits_s: list[float] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    _waiting: deque[tuple[int, int, float]] = field(default_factory=deque)  # worker, broker, sent
    _idle: deque[int] = field(default_factory=deque)
    _number: int = 0

    def run(self) -> None:
        """Plays until the end."""
        self._idle.extend(range(len(self.gpus)))
        for worker in range(len(self.workers)):
            for _ in range(GROUPS):
                self._at(self.luck.uniform(0, self.times.search_s), lambda now_s, worker=worker: self._search(now_s, worker))  # type: ignore[misc]
        settled = False
        while self._events and self._events[0][0] < self.end_s:
            now_s, _, happen = heapq.heappop(self._events)
            if not settled and now_s >= SETTLE * self.end_s:
                settled = True
                self._forget()
            happen(now_s)

    def _forget(self) -> None:
        self.answered = self.batches = 0
        self.waits_s.clear()
        for server in (*self.workers, *self.brokers, *self.gpus):
            server.busy_s = 0.0

    def _at(self, when_s: float, happen: Callable[[float], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when_s, self._number, happen))

    def _search(self, now_s: float, worker: int) -> None:
        """A group has its evaluations: the worker's core searches to the next leaves and sends them."""
        work_s = self.times.search_s * self.luck.uniform(1 - SPREAD, 1 + SPREAD) + self.times.client_s
        self._at(self.workers[worker].serve(now_s, work_s), lambda sent_s: self._send(sent_s, worker))

    def _send(self, now_s: float, worker: int) -> None:
        broker = self.homes[worker]
        done_s = self.brokers[broker].serve(now_s, self.times.broker_in_s)
        self._at(done_s, lambda there_s: self._arrive(there_s, worker, broker, now_s))

    def _arrive(self, now_s: float, worker: int, broker: int, sent_s: float) -> None:
        self._waiting.append((worker, broker, sent_s))
        if self._idle:
            self._forward(now_s, self._idle.popleft())

    def _forward(self, now_s: float, gpu: int) -> None:
        members = [self._waiting.popleft() for _ in range(min(BATCH_REQUESTS, len(self._waiting)))]
        self.batches += 1
        self._at(self.gpus[gpu].serve(now_s, self.times.gpu_s * len(members)), lambda done_s: self._reply(done_s, gpu, members))

    def _reply(self, now_s: float, gpu: int, members: list[tuple[int, int, float]]) -> None:
        for worker, broker, sent_s in members:
            back_s = self.brokers[broker].serve(now_s, self.times.broker_out_s)
            self.answered += 1
            self.waits_s.append(back_s - sent_s)
            self._at(back_s, lambda there_s, worker=worker: self._search(there_s, worker))  # type: ignore[misc]
        if self._waiting:
            self._forward(now_s, gpu)
        else:
            self._idle.append(gpu)


def simulate(figures: Mapping[str, float], *, workers: int, brokers: int, seconds: float, seed: int = 0) -> dict[str, float]:
    """Evaluations a second, utilisations and waits of the model."""
    gpus = int(figures["inference_gpus"])
    luck = random.Random(seed)
    homes = [client_shards("run", f"selfplay@host{worker // 8}:{1000 + worker}:1", brokers, 0)[0] for worker in range(workers)]
    fleet = Fleet(times_of(figures), _servers(workers), _servers(brokers), _servers(gpus), homes, luck, seconds)
    fleet.run()
    counted_s = seconds * (1 - SETTLE)
    waits = sorted(fleet.waits_s)
    evaluations = fleet.answered * figures["leaves_per_request"] / counted_s
    return {
        "workers": workers,
        "brokers": brokers,
        "evaluations_per_s": evaluations,
        "share_of_bare": evaluations / (gpus * figures["evaluations_per_s_per_gpu"]),
        "gpu_busy": _busy(fleet.gpus, counted_s),
        "broker_busy": _busy(fleet.brokers, counted_s),
        "busiest_broker": max(server.busy_s for server in fleet.brokers) / counted_s,
        "worker_busy": _busy(fleet.workers, counted_s),
        "batch_requests": fleet.answered / max(1, fleet.batches),
        "wait_p50_ms": 1e3 * waits[len(waits) // 2],
        "wait_p99_ms": 1e3 * waits[int(0.99 * len(waits))],
    }


def _servers(count: int) -> list[Server]:
    return [Server() for _ in range(count)]


def _busy(servers: list[Server], seconds: float) -> float:
    return sum(server.busy_s for server in servers) / len(servers) / seconds


def by_arithmetic(figures: Mapping[str, float], *, workers: int, brokers: int) -> dict[str, float]:
    """The same without any waiting: the slowest part sets the pace."""
    times = times_of(figures)
    gpus = figures["inference_gpus"] / times.gpu_s
    cores = workers / (times.search_s + times.client_s)
    wires = brokers / (times.broker_in_s + times.broker_out_s)
    requests = min(gpus, cores, wires)
    return {
        "evaluations_per_s": requests * figures["leaves_per_request"],
        "gpu_busy": requests / gpus,
        "broker_busy": requests / wires,
        "worker_busy": requests / cores,
    }


def main() -> None:
    """Simulates the plan's fleet, or the one asked for, beside the arithmetic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="?", type=Path)
    parser.add_argument("--workers", type=int, default=0, help="self-play workers of one core; 0: a third more than feed the GPUs")
    parser.add_argument("--brokers", type=int, default=0, help="0: as planned")
    parser.add_argument("--seconds", type=float, default=1.0, help="simulated")
    asked: Any = parser.parse_args()
    figures, _ = read_figures(asked.figures)
    planned = next(step.value for step in plan(figures) if step.what == "data brokers")
    workers = asked.workers or math.ceil(figures["inference_gpus"] * figures["search_cores_per_gpu"] * 4 / 3)
    size = {"workers": workers, "brokers": asked.brokers or int(planned)}
    request = figures["leaves_per_request"] * figures["request_bytes_per_leaf"] / KIB
    found = {
        "simulated": simulate(figures, **size, seconds=asked.seconds),
        "arithmetic": by_arithmetic(figures, **size),
        "request_kib": request,
    }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
