"""Requests and replies over the data plane."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from azq.config import Config
from azq.console.brokers import Brokers


def bench_bus(config: Config, *, seconds: float) -> dict[str, Any]:
    """Latency and CPU-seconds of a request with its reply, on the configured data plane or an embedded one."""
    from azq.inference.bench import bench_bus as measure

    with tempfile.TemporaryDirectory(prefix="azq-bench-") as folder, Brokers(config, Path(folder)) as brokers:
        return measure(brokers.apply(config).broker.data_planes[0], seconds=seconds)
