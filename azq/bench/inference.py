"""The network's forward pass, bare and through the stream."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from azq import games
from azq.bench.selfplay import NETWORK
from azq.bench.stream import latency
from azq.config import Config, RunConfig, RunSections
from azq.host.brokers import Brokers


def bench_inference(config: Config, *, seconds: float, game: str, batch: int = 0) -> dict[str, Any]:
    """Evaluations per CPU-second at `batch`, or that of one self-play group: the bare network, and everything from client to broker.

    Then what the stream adds to the round trip of one such batch, with the server in a process of its own.
    """
    from azq.bench.forward import bench_inference as measure
    from azq.nets import NetSpec

    spec = NetSpec.of(games.load(game))
    batch = batch or config.selfplay.games_in_flight // config.selfplay.groups
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as folder, Brokers(config, Path(folder)) as brokers:
        broker = brokers.apply(config).broker
        figures = measure(
            config.inference, NETWORK, spec, broker.control_url, broker.data_planes[0], game=game, seconds=seconds, batch=batch
        )
    sections = RunSections(run=RunConfig(game=game), network=NETWORK)
    trips = latency(config, sections, seconds, batch)
    return {**figures, **{name: value for name, value in trips.items() if name != "batch"}}
