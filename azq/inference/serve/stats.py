"""What an inference worker reports of itself."""

from __future__ import annotations

from azq import metrics


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
        self.dead_letters = 0
        self.weight_switch_s = 0.0

    def batch(self, leaves: int, busy_s: float) -> None:
        self._evaluations.add(leaves)
        self._batches.add(1)
        self._batch_leaves.add(leaves)
        self._busy_s.add(busy_s)

    def answered(self, latencies_ms: list[int]) -> None:
        """Counts replies by the time since their requests were sent; clocks of two hosts may disagree, so negative ones count as 0."""
        self._requests.add(len(latencies_ms))
        for latency_ms in (max(0, latency) for latency in latencies_ms):
            self._latency_ms.add(latency_ms)
            self._latencies.add(latency_ms)

    @property
    def evaluations(self) -> int:
        return int(self._evaluations.total)

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
