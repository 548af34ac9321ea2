"""Names of the figures azq reports, in one place: heartbeats, `azq status`, TensorBoard and Prometheus use the same ones."""

from __future__ import annotations

import math
import time
from collections import deque

GAMES_PER_S = "games_per_s"
PLIES_PER_S = "plies_per_s"
SIMULATIONS_PER_S = "simulations_per_s"
EVALUATIONS_PER_S = "evaluations_per_s"
EXACT_SIMULATIONS_PER_S = "exact_simulations_per_s"  # ended in a terminal or proven position and asked for no evaluation
CACHE_LOOKUPS_PER_S = "cache_lookups_per_s"  # leaves that the evaluation cache was asked for
CACHE_HITS_PER_S = "cache_hits_per_s"  # of these, answered
MERGED_LEAVES_PER_S = "merged_leaves_per_s"  # leaves that shared the row of another game's in one request
MEAN_BATCH = "mean_batch"
BATCH_LEAVES = "batch_leaves"  # of one forward pass; only its quantiles are reported
POLICY_LAG = "policy_lag"
EVAL_LATENCY_MS = "eval_latency_ms"
NETWORK_BUSY = "network_busy"  # share of wall time spent in forward passes
RESENT = "evaluations_resent"
DEAD_LETTERS = "dead_letters"
SAMPLES_PER_S = "samples_per_s"
WEIGHT_SWITCH_S = "weight_switch_s"  # of the last swap: from its publication to the first batch that may use it
FALLBACKS = "fallbacks"  # steps down that forward passes took: smaller batches, op by op, float32 on the CPU
CPU_S = "cpu_s"  # of a process and its children, since its start
RESIDENT_BYTES = "resident_bytes"  # of a process and its children
DISK_FREE_BYTES = "disk_free_bytes"  # where the segment log grows
GPU_MEMORY_USED_BYTES = "gpu_memory_used_bytes"  # of the whole device
GPU_MEMORY_BYTES = "gpu_memory_bytes"
QUANTILES = (0.5, 0.95, 0.99)


def at_quantile(name: str, quantile: float) -> str:
    """The name of a figure's quantile: `eval_latency_ms_p95`."""
    return f"{name}_p{100 * quantile:g}"


class Recent:
    """The newest `keep` observations, for quantiles."""

    def __init__(self, keep: int = 1024) -> None:
        self._values: deque[float] = deque(maxlen=keep)

    def add(self, value: float) -> None:
        """Notes an observation."""
        self._values.append(value)

    def quantiles(self) -> tuple[float, ...]:
        """The values at QUANTILES (nearest rank); zeros before anything was noted."""
        ranked = sorted(self._values)
        return tuple(ranked[math.ceil(quantile * len(ranked)) - 1] if ranked else 0.0 for quantile in QUANTILES)

    def named(self, name: str) -> dict[str, float]:
        """The quantiles under their names."""
        return {at_quantile(name, quantile): value for quantile, value in zip(QUANTILES, self.quantiles(), strict=True)}


class Rate:
    """Events per second over a sliding window of `window_s` seconds."""

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._marks: deque[tuple[float, float]] = deque([(time.monotonic(), 0.0)])
        self._total = 0.0

    def add(self, count: float) -> None:
        """Counts events that happened now."""
        self._total += count
        now = time.monotonic()
        if now - self._marks[-1][0] >= self._window_s / 20:
            self._marks.append((now, self._total))
            while len(self._marks) > 2 and now - self._marks[1][0] > self._window_s:
                self._marks.popleft()

    @property
    def total(self) -> float:
        """All events since creation."""
        return self._total

    def per_s(self) -> float:
        """The rate; 0 before anything was counted."""
        now = time.monotonic()
        then, total = self._marks[0]
        return (self._total - total) / max(now - then, 1e-9)
