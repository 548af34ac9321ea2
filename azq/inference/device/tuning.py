"""How many leaves a batch waits for, for how long, and on how many threads it runs: chosen from latency measured on this host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch

from azq import logs
from azq.config import InferenceConfig
from azq.inference.device.forward import bucket_of
from azq.inference.device.model import Model, Packed, random_observations

THROUGHPUT_GIVEN_UP = 0.05  # of the best, for a smaller batch
THREAD_WORTH = 0.5  # a further thread must add so much of what the first one does
DEADLINE_OF_LATENCY = 0.25
SHORTEST_DEADLINE_S, LONGEST_DEADLINE_S = 0.0002, 0.005
SHARE_OF_LATENCY = 0.05  # of one batch in the running mean
PROBE_S = 0.02  # spent on one size; a size that takes longer is run once


class BatchLimits(NamedTuple):
    """When a batch may go: once it holds `enough` leaves, or once its oldest request is `deadline_s` old."""

    enough: int
    deadline_s: float


def choose_batch(latencies_s: Mapping[int, float]) -> int:
    """The smallest batch whose throughput comes near the best; `latencies_s` are seconds a batch, by its leaves."""
    best = max(size / latency_s for size, latency_s in latencies_s.items())
    return min(size for size, latency_s in latencies_s.items() if size / latency_s >= (1 - THROUGHPUT_GIVEN_UP) * best)


def choose_threads(latencies_s: Mapping[int, float]) -> int:
    """The most threads of which each was worth its core; `latencies_s` are seconds a batch, by the threads 1, 2, ..."""
    chosen = 1
    while chosen + 1 in latencies_s:
        gained = 1 / latencies_s[chosen + 1] - 1 / latencies_s[chosen]
        if gained < THREAD_WORTH / latencies_s[1]:
            break
        chosen += 1
    return chosen


def choose_deadline_s(latency_s: float) -> float:
    """How long the oldest request may wait for others: a part of what its batch takes, within bounds."""
    return min(max(DEADLINE_OF_LATENCY * latency_s, SHORTEST_DEADLINE_S), LONGEST_DEADLINE_S)


def sizes_to_try(sizes: Sequence[int]) -> tuple[int, ...]:
    """The powers of two among the buckets, and the largest bucket."""
    return tuple(size for size in sizes if size & (size - 1) == 0 or size == sizes[-1])


def measure(evaluate: Callable[[int], object], at: Sequence[int], clock_s: Callable[[], float], *, budget_s: float) -> dict[int, float]:
    """Seconds that `evaluate` takes at each of some values, the least of a few runs, in order until the time is used up; at least one.

    The first run at each value, which may compile or record, is not counted.
    """
    least_s: dict[int, float] = {}
    left_s = budget_s
    for value in at:
        evaluate(value)
        runs_s: list[float] = []
        while not runs_s or sum(runs_s) < PROBE_S:
            start_s = clock_s()
            evaluate(value)
            runs_s.append(max(clock_s() - start_s, 1e-6))
        least_s[value] = min(runs_s)
        left_s -= sum(runs_s)
        if 4 * least_s[value] > left_s:  # the next may take twice as long, and runs twice
            break
    return least_s


class Tuned:
    """The limits of one network: leaves fixed when it was measured, the deadline following the latency of live batches."""

    def __init__(self, enough: int, latency_s: float, *, deadline_s: float | None = None) -> None:
        self._enough = enough
        self._latency_s = latency_s
        self._fixed_s = deadline_s  # what the operator said

    @property
    def limits(self) -> BatchLimits:
        return BatchLimits(self._enough, choose_deadline_s(self._latency_s) if self._fixed_s is None else self._fixed_s)

    def observe(self, leaves: int, latency_s: float) -> None:
        """Notes a batch that ran alone; one much smaller than `enough` says little."""
        if 2 * leaves >= self._enough:
            self._latency_s += SHARE_OF_LATENCY * (latency_s - self._latency_s)


BUDGET_S = 0.5  # for batches, and half of it for threads


def tune(model: Model, config: InferenceConfig, before: Tuned | None = None, clock_s: Callable[[], float] = time.monotonic) -> Tuned:
    """The limits of a model that is not in service, and `Engine.threads`; what the operator set is not measured.

    A network that grew keeps those from `before` where there are no threads to measure: what filled the device then fills it now, and
    it is at work. Runs on one thread but for what it measures.
    """
    engine, deadline_s = model.engine, None if config.deadline_ms == "auto" else config.deadline_ms / 1e3
    measures_threads = engine.placement.device.type == "cpu" and not config.threads
    if before and not measures_threads:
        return before
    if config.batch and deadline_s is not None and not measures_threads:
        return Tuned(min(config.batch, config.max_batch), deadline_s, deadline_s=deadline_s)
    try:
        torch.set_num_threads(engine.threads)
        batch, latency_s = _tune_batch(model, config, clock_s)
        if measures_threads:
            latency_s = _tune_threads(model, batch, clock_s)
    finally:
        torch.set_num_threads(1)
    tuned = Tuned(min(config.batch, config.max_batch) or batch, latency_s, deadline_s=deadline_s)
    enough, wait_s = tuned.limits
    figures = {"batch": enough, "deadline_ms": round(wait_s * 1e3, 3), "threads": engine.threads, "latency_ms": round(latency_s * 1e3, 3)}
    logs.get(__name__).info("tuned", network=model.network.kind, execution=str(model.execution), **figures)
    return tuned


def _tune_batch(model: Model, config: InferenceConfig, clock_s: Callable[[], float]) -> tuple[int, float]:
    """Leaves of a batch, and the seconds that it takes with others in flight."""
    sizes, in_flight = model.engine.sizes(model.execution), model.engine.in_flight
    evaluate = partial(_evaluate, model, in_flight, random_observations(model.spec, sizes[-1]))
    at = (bucket_of(min(config.batch, sizes[-1]), sizes),) if config.batch else sizes_to_try(sizes)
    latencies_s = measure(evaluate, at, clock_s, budget_s=BUDGET_S)
    batch = choose_batch(latencies_s)
    return batch, latencies_s[batch] / in_flight


def _tune_threads(model: Model, batch: int, clock_s: Callable[[], float]) -> float:
    """Sets the engine's threads; the seconds that a batch takes on them."""
    engine, packed = model.engine, random_observations(model.spec, batch)

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
