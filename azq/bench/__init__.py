"""`azq bench`: what this machine reaches, per CPU-second of all processes together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from azq.bench.bus import bench_bus
from azq.bench.daemon import bench_daemon
from azq.bench.inference import bench_inference
from azq.bench.learner import bench_learner
from azq.bench.peers import bench_peers
from azq.bench.replay import bench_replay
from azq.bench.rest import bench_rest
from azq.bench.search import bench_search
from azq.bench.selfplay import bench_selfplay
from azq.bench.strength import bench_strength
from azq.bench.weights import bench_weights

BENCHES: dict[str, Callable[..., dict[str, Any]]] = {
    "search": bench_search,
    "selfplay": bench_selfplay,
    "inference": bench_inference,
    "learner": bench_learner,
    "bus": bench_bus,
    "daemon": bench_daemon,
    "rest": bench_rest,
    "replay": bench_replay,
    "peers": bench_peers,
    "strength": bench_strength,
    "weights": bench_weights,
}


def as_text(name: str, result: dict[str, Any]) -> str:
    """The figures of one benchmark, one a line."""
    lines = [f"azq bench {name}"]
    for key, value in result.items():
        shown = (
            f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:,.0f}" if isinstance(value, float) else value
        )
        lines.append(f"  {key:<28} {shown}")
    return "\n".join(lines)
