"""The daemon's tick in front of a large fleet with nothing to do: what it costs to keep looking.

The fleet is simulated: runs with their jobs in a real broker, and heartbeats of workers that do not exist, which a process of its own keeps
alive at the interval that real workers keep.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import redis

from azq.bench.rig import command_of, own_brokers, percentile, running
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config, RunSections, load
from azq.errors import EvaluationTimeout
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.ledger.types import JobState
from azq.metrics import EVAL_LATENCY_MS, GAMES_PER_S, SIMULATIONS_PER_S
from azq.process.proc import cpu_s
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec
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
