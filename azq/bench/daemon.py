"""The daemon's tick in front of a large fleet with nothing to do: what it costs to keep looking."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import redis

from azq.bench import fleet
from azq.bench.rig import own_brokers, percentile
from azq.config import Config
from azq.errors import EvaluationTimeout
from azq.ledger import Ledger
from azq.process.proc import cpu_s
from daemon.main import settle
from daemon.serve.core import build
from daemon.serve.lock import DaemonLock
from daemon.serve.loop import Loop

WARM_UP_TICKS = 5


def bench_daemon(config: Config, *, workers: int, runs: int, seconds: float) -> dict[str, Any]:
    """CPU of one tick in ms, daemon and broker apart, and the daemon's share of a core at its own interval."""
    with own_brokers(config) as (config, brokers):
        fleet.populate(brokers.control, config.run_sections(), runs=runs, workers=workers)
        with fleet.beating(config, config.home, workers):
            return _measure(brokers.control, config, brokers.pids[:1], workers, runs, seconds)


def _measure(client: redis.Redis, config: Config, broker: tuple[int, ...], workers: int, runs: int, seconds: float) -> dict[str, Any]:
    loop = build(config, client, DaemonLock(client)).loop
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
