"""The daemon before a large simulated fleet: what its tick costs with nothing to do, and how fast its REST interface answers.

Runs with their jobs are in a real broker, and a process keeps heartbeats of workers that do not exist alive. The load on REST is an open
loop: requests leave on a schedule, whatever became of those before, and a latency counts from the moment that the schedule names.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import redis

from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config, RunSections, load
from azq.config.access import with_own_token
from azq.errors import EvaluationTimeout
from azq.host.fronts import free_port
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.ledger.types import JobState
from azq.metrics import EVAL_LATENCY_MS, GAMES_PER_S, SIMULATIONS_PER_S
from azq.parts.lab.bench.rig import READY_S, PartProcess, changed, command_of, own_brokers, percentile, running
from azq.process.network import open_web
from azq.process.proc import cpu_s
from azq.process.start import AZQ, child_environment
from azq.process.supervisor import ChildSpec
from azq.waiting import until
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import SCHEMA, EvalRound, Heartbeat, Job, LearnerStatus, MatchResult, MatchSpec, WeightEvent
from daemon.main import settle
from daemon.serve.loop import DaemonLock, Loop, build

TAG = "cpu"
LEASE_S = 3600.0
SHARES = 10  # of the fleet that beats at once: real workers do not beat in step
ENDED_JOBS = 20
MATCHES = 40
WARM_UP_TICKS = 5
LEARNER = LearnerStatus(
    step=3000, samples_inserted=1_000_000, samples_consumed=1_536_000, games_inserted=30_000, duplicates_dropped=0, window=500_000,
    loss_policy=1.1, loss_value=0.5, learning_rate=1e-3, weight_version=3, stall_selfplay=False, waiting=False, samples_per_s=2_000.0,
    sent_ms=0,
)  # fmt: skip


def bench_daemon(config: Config, *, workers: int, runs: int, seconds: float) -> dict[str, Any]:
    """CPU of one tick in ms, daemon and broker apart, and the daemon's share of a core at its own interval."""
    with own_brokers(config) as (config, brokers):
        populate(brokers.control, config.run_sections(), runs=runs, workers=workers)
        with beating(config, config.home, workers):
            return _measure(brokers.control, config, brokers.pids[:1], workers, runs, seconds)


def _measure(client: redis.Redis, config: Config, broker: tuple[int, ...], workers: int, runs: int, seconds: float) -> dict[str, Any]:
    loop = build(config, client, DaemonLock(client))
    for _ in range(WARM_UP_TICKS):
        loop.tick()
    settle()
    jobs, pause = len(Ledger(client).jobs()), threading.Event()
    spent, broker_s, end = list[float](), cpu_s(broker), time.monotonic() + seconds
    while time.monotonic() < end:
        spent.append(_cpu_ms(loop))
        pause.wait(config.daemon.tick_s)
    mean_ms = statistics.fmean(spent)
    return {
        "workers": workers,
        "runs": runs,
        "jobs": jobs,
        "jobs_added": len(Ledger(client).jobs()) - jobs,
        "ticks": len(spent),
        "tick_cpu_ms_median": round(statistics.median(spent), 2),
        "tick_cpu_ms_p95": round(percentile(spent, 0.95), 2),
        "tick_cpu_ms_max": round(max(spent), 2),
        "broker_cpu_ms_per_tick": round(1000 * (cpu_s(broker) - broker_s) / len(spent), 2),
        "share_of_a_core": round(mean_ms / 1000 / config.daemon.tick_s, 4),
    }


def _cpu_ms(loop: Loop) -> float:
    began = time.thread_time()
    if not loop.tick():
        raise EvaluationTimeout("a tick of the measured daemon failed; see the line above")
    return 1000 * (time.thread_time() - began)


def run_name(index: int) -> str:
    return f"bench-{index:03d}"


def beat(index: int, sent_ms: int) -> Heartbeat:
    """The heartbeat of a simulated self-play worker."""
    return Heartbeat(
        role="selfplay",
        worker=f"selfplay.{TAG}-{index}@host{index // 8}",
        host=f"host{index // 8}",
        pid=1000 + index,
        version="bench",
        schema=SCHEMA,
        started_ms=sent_ms - 600_000,
        sent_ms=sent_ms,
        queues=(f"selfplay.{TAG}", f"eval.{TAG}"),
        tags=(TAG,),
        rates={GAMES_PER_S: 3.0, SIMULATIONS_PER_S: 9000.0, EVAL_LATENCY_MS: 4.0},
        weight_versions={run_name(index % 10): 3},
    )


def populate(client: redis.Redis, sections: RunSections, *, runs: int, workers: int) -> None:
    """Creates running runs, each with its share of leased jobs, one queued job, ended jobs, weights, matches and a live learner."""
    for index in range(runs):
        _populate_run(client, sections, run_name(index), jobs=-(-workers // runs))


@contextlib.contextmanager
def beating(config: Config, folder: Path, workers: int) -> Iterator[None]:
    """A process that keeps the heartbeats of so many workers alive; all of them live when this is entered."""
    with connect(config.broker.control_url) as client:
        send_beats(client, range(workers), config.worker.heartbeat_life_s)
    beats = ChildSpec("fleet", command_of(beat_for_ever, workers=workers), folder / "fleet.log")
    with running([beats], child_environment(config, "daemon")):
        yield


def beat_for_ever(workers: int) -> None:
    """Keeps the heartbeats alive, a share of the fleet at a time; in a process of its own."""
    config = load()  # the broker's address comes by the environment: it holds a password
    client, pause, turn = connect(config.broker.control_url), threading.Event(), 0
    while True:
        began = time.monotonic()
        send_beats(client, range(turn % SHARES, workers, SHARES), config.worker.heartbeat_life_s)
        turn += 1
        pause.wait(max(0.0, config.worker.heartbeat_s / SHARES - (time.monotonic() - began)))


def send_beats(client: redis.Redis, indices: range, life_s: float) -> None:
    """Heartbeats of these workers, in one round trip."""
    looked_ms = now_ms()
    with client.pipeline(transaction=False) as pipe:
        for index in indices:
            message = beat(index, looked_ms)
            pipe.set(keys.beat(message.worker), encode(message), px=round(life_s * 1000))
        pipe.execute()


def _populate_run(client: redis.Redis, sections: RunSections, name: str, *, jobs: int) -> None:
    ledger, bus, made_ms = Ledger(client), RedisBus(client), now_ms()
    ledger.create_run(record_of(name, sections, f"/runs/{name}", made_ms))
    for number in range(ENDED_JOBS + jobs + 1):
        job = ledger.enqueue(Job("", name, Kind.SELFPLAY, TAG, games=1024, slice_s=60.0))
        ledger.mark_published(job.job.job_id, job.attempt)
        if number < ENDED_JOBS + jobs:
            lease = ledger.claim(job.job.job_id, job.attempt, f"host{number}:1", LEASE_S)
            if lease is not None and number < ENDED_JOBS:
                ledger.release(lease, [])
    assert sum(view.state is JobState.LEASED for view in ledger.jobs(name)) == jobs
    bus.publish(keys.weights(name), encode(WeightEvent(name, 3, "0" * 64, "file:none", 3000, made_ms)))
    bus.put(keys.eval_round(name), encode(EvalRound(3, made_ms)))
    bus.put(keys.learner_status(name), encode(msgspec.structs.replace(LEARNER, sent_ms=made_ms)), life_s=LEASE_S)
    for index in range(MATCHES):
        first, second = f"weights:{1 + index % 3}", ("uct:100", "weights:1")[index % 2]
        spec = MatchSpec(first, second, 40, 64, 4, index)
        bus.publish(keys.results(name), encode(MatchResult(spec, first, second, 22, 4, 14, made_ms)))


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
            asking = PartProcess(ask, {**os.environ, TOKEN_VARIABLE: token}, url=url, rate=rate, seconds=seconds, runs=runs)
            found = asking.answer(seconds + STOP_S)
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
    seen = asyncio.run(put_load(url, schedule(rate, seconds, [run_name(index) for index in range(runs)], seed=0)))
    return {route: asdict(one) for route, one in seen.items()}


def schedule(rate: float, seconds: float, runs: list[str], seed: int) -> list[tuple[float, str, str]]:
    """When to ask for what: (seconds from the start, route, path), in order."""
    luck = random.Random(seed)
    routes = luck.choices(list(MIX), list(MIX.values()), k=round(rate * seconds))
    asked = [(index / rate, route, route.format(run=luck.choice(runs))) for index, route in enumerate(routes)]
    count = max(1, round(seconds / METRICS_EVERY_S))
    scrapes = [(seconds * (index + 0.5) / count, METRICS, METRICS) for index in range(count)]
    return sorted(asked + scrapes)


async def put_load(url: str, plan: list[tuple[float, str, str]]) -> dict[str, RouteSeen]:
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
