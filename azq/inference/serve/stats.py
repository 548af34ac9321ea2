"""What an inference worker reports of itself."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain

from azq import metrics
from azq.clock import now_ns
from azq.inference.serve.requests import Pending
from azq.tracing import BATCH, REQUESTS, TRACES

WINDOW_S = 15.0  # of what a run has of it


class Stats:
    """Rates over a sliding window; the figures' names are those of `azq.metrics`."""

    def __init__(self) -> None:
        self._evaluations = metrics.Rate()
        self._batches = metrics.Rate()
        self._busy_s = metrics.Rate()
        self._latency_ms = metrics.Rate()  # summed over requests
        self._requests = metrics.Rate()
        self._latencies = metrics.Recent()
        self._batch_leaves = metrics.Recent()
        self._by_run: dict[str, tuple[metrics.Rate, metrics.Rate, metrics.Rate]] = {}  # leaves, passes, seconds in them
        self.dead_letters = 0
        self.weight_switch_s = 0.0

    def batch(self, run: str, leaves: int, busy_s: float) -> None:
        """Counts a forward pass for a run."""
        self._evaluations.add(leaves)
        self._batches.add(1)
        self._batch_leaves.add(leaves)
        self._busy_s.add(busy_s)
        of_run = self._by_run.setdefault(run, (metrics.Rate(WINDOW_S), metrics.Rate(WINDOW_S), metrics.Rate(WINDOW_S)))
        for rate, more in zip(of_run, (leaves, 1, busy_s), strict=True):
            rate.add(more)

    def answered(self, latencies_ms: list[int]) -> None:
        """Counts replies by the time since their requests were sent; clocks of two hosts may disagree, so negative ones count as 0."""
        self._requests.add(len(latencies_ms))
        for latency_ms in (max(0, latency) for latency in latencies_ms):
            self._latency_ms.add(latency_ms)
            self._latencies.add(latency_ms)

    @property
    def evaluations(self) -> int:
        return int(self._evaluations.total)

    def by_run(self) -> dict[str, tuple[float, float, float]]:
        """What the runs of the last seconds had of it, as in `Heartbeat.by_run`; others are forgotten."""
        for rate in chain.from_iterable(self._by_run.values()):
            rate.add(0)  # its window ends now
        figures = {run: (leaves.per_s(), passes.per_s(), busy_s.per_s()) for run, (leaves, passes, busy_s) in self._by_run.items()}
        self._by_run = {run: self._by_run[run] for run, (_, passes_per_s, _) in figures.items() if passes_per_s}
        return {run: (leaves, leaves / passes, min(1.0, busy)) for run, (leaves, passes, busy) in figures.items() if passes}

    def rates(self) -> dict[str, float]:
        return {
            metrics.EVALUATIONS_PER_S: self._evaluations.per_s(),
            metrics.MEAN_BATCH: self._evaluations.per_s() / max(self._batches.per_s(), 1e-9),
            metrics.NETWORK_BUSY: min(1.0, self._busy_s.per_s()),
            metrics.EVAL_LATENCY_MS: self._latency_ms.per_s() / max(self._requests.per_s(), 1e-9),
            metrics.DEAD_LETTERS: float(self.dead_letters),
            metrics.WEIGHT_SWITCH_S: self.weight_switch_s,
            **self._latencies.named(metrics.EVAL_LATENCY_MS),
            **self._batch_leaves.named(metrics.BATCH_LEAVES),
        }


def trace_requests(members: Iterable[Pending], leaves: int, weight_version: int) -> None:
    """Records those requests of a batch of so many leaves that are traced."""
    for pending in members if TRACES.on else ():
        traces = TRACES.sampled("request", pending.run, numbers=[pending.request.request_id], times=REQUESTS)
        start_ns = now_ns() - int(1e9 * (time.monotonic() - pending.arrived_s))
        TRACES.add((BATCH,), traces, start_ns, leaves=pending.count, of_leaves=leaves, weight_version=weight_version)
