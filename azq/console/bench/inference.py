"""The network's forward pass."""

from __future__ import annotations

from typing import Any

from azq.config import Config


def bench_inference(config: Config, *, seconds: float, game: str) -> dict[str, Any]:
    """Evaluations per CPU-second, bare and through the stream."""
    from azq.inference.bench import bench_inference as measure

    run = config.run.model_copy(update={"game": game})
    return measure(config.model_copy(update={"run": run}), seconds)
