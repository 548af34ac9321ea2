"""The network's forward pass, bare and through the stream."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from azq import games
from azq.config import Config
from azq.console.bench.selfplay import NETWORK
from azq.console.brokers import Brokers


def bench_inference(config: Config, *, seconds: float, game: str) -> dict[str, Any]:
    """Evaluations per CPU-second at the batch of one self-play group: the bare network, and everything from client to broker."""
    from azq.inference.bench import bench_inference as measure
    from azq.nets import NetSpec

    spec = NetSpec.of(games.load(game))
    batch = config.selfplay.games_in_flight // config.selfplay.groups
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as folder, Brokers(config, Path(folder)) as brokers:
        broker = brokers.apply(config).broker
        return measure(config.inference, NETWORK, spec, broker.control_url, broker.data_planes[0], game=game, seconds=seconds, batch=batch)
