"""Measures a network on this host and sets what a batch waits for, and on how many threads it runs; what is chosen: tuning.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from azq import logs
from azq.config import InferenceConfig
from azq.inference.device.engine import Engine
from azq.inference.device.forward import bucket_of
from azq.inference.device.model import Model, Packed, random_observations
from azq.inference.device.tuning import Tuned, choose_batch, choose_threads, measure, sizes_to_try

BUDGET_S = 0.5  # for batches, and half of it for threads


def tune(
    model: Model, engine: Engine, config: InferenceConfig, before: Tuned | None = None, clock_s: Callable[[], float] = time.monotonic
) -> Tuned:
    """The limits of a model that is not in service, and `engine.threads`; what the operator set is not measured.

    A network that grew keeps those from `before` where there are no threads to measure: what filled the device then fills it now, and
    it is at work. Runs on one thread but for what it measures.
    """
    deadline_s = None if config.deadline_ms == "auto" else config.deadline_ms / 1e3
    measures_threads = engine.placement.device.type == "cpu" and not config.threads
    if before and not measures_threads:
        return before
    if config.batch and deadline_s is not None and not measures_threads:
        return Tuned(min(config.batch, config.max_batch), deadline_s, deadline_s=deadline_s)
    try:
        torch.set_num_threads(engine.threads)
        batch, latency_s = _tune_batch(model, engine, config, clock_s)
        if measures_threads:
            latency_s = _tune_threads(model, engine, batch, clock_s)
    finally:
        torch.set_num_threads(1)
    tuned = Tuned(min(config.batch, config.max_batch) or batch, latency_s, deadline_s=deadline_s)
    enough, wait_s = tuned.limits
    figures = {"batch": enough, "deadline_ms": round(wait_s * 1e3, 3), "threads": engine.threads, "latency_ms": round(latency_s * 1e3, 3)}
    logs.get(__name__).info("tuned", network=model.network.kind, execution=str(model.execution), **figures)
    return tuned


def _tune_batch(model: Model, engine: Engine, config: InferenceConfig, clock_s: Callable[[], float]) -> tuple[int, float]:
    """Leaves of a batch, and the seconds that it takes with others in flight."""
    sizes, in_flight = engine.sizes(model.execution), engine.in_flight
    evaluate = partial(_evaluate, model, in_flight, random_observations(model.spec, sizes[-1]))
    at = (bucket_of(min(config.batch, sizes[-1]), sizes),) if config.batch else sizes_to_try(sizes)
    latencies_s = measure(evaluate, at, clock_s, budget_s=BUDGET_S)
    batch = choose_batch(latencies_s)
    return batch, latencies_s[batch] / in_flight


def _tune_threads(model: Model, engine: Engine, batch: int, clock_s: Callable[[], float]) -> float:
    """Sets the engine's threads; the seconds that a batch takes on them."""
    packed = random_observations(model.spec, batch)

    def on_threads(count: int) -> None:
        engine.threads = count
        torch.set_num_threads(count)
        _evaluate(model, 1, packed, batch)

    by_threads_s = measure(on_threads, range(1, engine.placement.cores + 1), clock_s, budget_s=BUDGET_S / 2)
    engine.threads = choose_threads(by_threads_s)
    return by_threads_s[engine.threads]


def _evaluate(model: Model, in_flight: int, packed: Packed, size: int) -> None:
    """Of random observations: a device that multiplies zeros draws less power, and is faster than it will be."""
    rows = packed[:size]
    for running in [model.launch(rows) for _ in range(in_flight)]:
        model.complete(running, rows)
