"""The learner's step."""

from __future__ import annotations

from typing import Any

from azq.config import Config


def bench_learner(config: Config, *, seconds: float, game: str, ranks: int = 1) -> dict[str, Any]:
    """Samples per second of the whole step beside a bare training loop, and the memory of a 1 M-sample window.

    With several ranks: how they scale, each on a core or GPU of its own, beside one of them alone.
    """
    from azq.bench.ranks import bench_ranks
    from azq.bench.training import bench_learner as measure

    config = config.model_copy(update={"run": config.run.model_copy(update={"game": game})})
    return measure(config, seconds) if ranks == 1 else bench_ranks(config, seconds, ranks)
