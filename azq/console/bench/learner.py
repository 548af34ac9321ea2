"""The learner's step."""

from __future__ import annotations

from typing import Any

from azq.config import Config


def bench_learner(config: Config, *, seconds: float, game: str) -> dict[str, Any]:
    """Samples per second of the whole step beside a bare training loop, and the memory of a 1 M-sample window."""
    from azq.learner.bench import bench_learner as measure

    run = config.run.model_copy(update={"game": game})
    return measure(config.model_copy(update={"run": run}), seconds)
