"""Every figure that a process tells of itself, in one table: heartbeats, `/metrics` and the fleet's board are made from it.

A new figure is a row of `FIGURES`. One that the searches count needs its getter in the core and a line in `_core.pyi`, and nothing else.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import mul

GAMES_PER_S = "games_per_s"
SIMULATIONS_PER_S = "simulations_per_s"
EVALUATIONS_PER_S = "evaluations_per_s"
MEAN_BATCH = "mean_batch"
BATCH_LEAVES = "batch_leaves"
EVAL_LATENCY_MS = "eval_latency_ms"
NETWORK_BUSY = "network_busy"
RESENT = "evaluations_resent"
DEAD_LETTERS = "dead_letters"
SAMPLES_PER_S = "samples_per_s"
WEIGHT_SWITCH_S = "weight_switch_s"
FALLBACKS = "fallbacks"
RUNG = "rung"
TABS = "tabs"
CPU_S = "cpu_s"
RESIDENT_BYTES = "resident_bytes"
DISK_FREE_BYTES = "disk_free_bytes"
GPU_MEMORY_USED_BYTES = "gpu_memory_used_bytes"
GPU_MEMORY_BYTES = "gpu_memory_bytes"
GPU_BUSY = "gpu_busy"
GPU_POWER_W = "gpu_power_w"
GPU_TEMPERATURE_C = "gpu_temperature_c"
QUANTILES = (0.5, 0.95, 0.99)

#: A worker's figure from those of its pool children, which weigh what they evaluate per second.
Combine = Callable[[Sequence[float], Sequence[float]], float]


def total(values: Sequence[float], weights: Sequence[float]) -> float:
    """The sum, whatever the children weigh."""
    return float(sum(values))


def mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted mean; 0 where all weights are 0."""
    weight = sum(weights)
    return sum(map(mul, values, weights)) / weight if weight else 0.0


def largest(values: Sequence[float], weights: Sequence[float]) -> float:
    """That of the child that has most: quantiles of several do not add up to one."""
    return max(values)


@dataclass(frozen=True, slots=True)
class Chart:
    """What the fleet's board shows of a figure; charts of one title are one."""

    title: str
    legend: str = "{{worker}}"
    unit: str = "short"  # as Grafana names it
    query: str = ""  # in PromQL; empty: the metric itself
    kind: str = "timeseries"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a process."""

    name: str  # in heartbeats
    metric: str = ""  # in Prometheus; empty: not shown there
    help: str = ""
    charts: tuple[Chart, ...] = ()
    combine: Combine | None = None  # None: pool children do not have it
    counter: str = ""  # whose rate per second it is, of `azq.actor.progress` or of the searches
    factor: float = 1.0  # from its unit to the metric's
    counts_up: bool = False  # while its process lives
    quantiles: bool = False  # only those of the newest observations are shown

    def of_children(self) -> Iterator[tuple[str, Combine]]:
        """The names under which pool children tell it, and how each becomes their worker's."""
        if self.combine is not None:
            yield self.name, self.combine
            yield from ((at_quantile(self.name, at), largest) for at in QUANTILES if self.quantiles)


def at_quantile(name: str, quantile: float) -> str:
    """The name of a figure's quantile: `eval_latency_ms_p95`."""
    return f"{name}_p{100 * quantile:g}"


def _rate(counter: str, metric: str = "", help: str = "", *charts: Chart) -> Figure:
    """A counter of the searches or the slice, per second."""
    return Figure(f"{counter}_per_s", metric, help, charts, combine=total, counter=counter)


def _latency(quantile: float) -> Chart:
    return Chart(f"Evaluation latency, p{100 * quantile:g}", unit="s", query=f'azq_eval_latency_seconds{{quantile="{quantile:g}"}}')


def _spared(how: str, part: str, whole: str) -> Chart:
    return Chart("Evaluations spared", f"{{{{worker}}}} {how}", "percentunit", f"{part} / ({whole} > 0)")


#: In the order of the board.
# fmt: off
FIGURES = (
    Figure(EVAL_LATENCY_MS, "azq_eval_latency_seconds", "An evaluation request, from its sending to its answer.",
           tuple(map(_latency, QUANTILES)), combine=mean, factor=1e-3, quantiles=True),
    Figure(BATCH_LEAVES, "azq_batch_leaves", "Leaves of a forward pass.",
           (Chart("Batch, p50 and p95", "{{worker}} {{quantile}}", query='azq_batch_leaves{quantile=~"0.5|0.95"}'),), quantiles=True),
    Figure(NETWORK_BUSY, "azq_network_busy", "Share of wall time in which an inference worker has a batch on its device.",
           (Chart("Network busy", unit="percentunit"),)),
    Figure(GPU_MEMORY_USED_BYTES, "azq_gpu_memory_used_bytes", "Memory in use on the GPU that a process computes on.",
           (Chart("GPU memory", "{{worker}} used", "bytes"),)),
    Figure(GPU_MEMORY_BYTES, "azq_gpu_memory_bytes", "Memory of the GPU that a process computes on.",
           (Chart("GPU memory", "{{worker}} in all", "bytes"),)),
    Figure(GPU_BUSY, "azq_gpu_busy", "Share of time in which the GPU that a process computes on is at work, as its driver tells.",
           (Chart("GPU busy", unit="percentunit"),)),
    Figure(GPU_POWER_W, "azq_gpu_power_watts", "Power of the GPU that a process computes on.", (Chart("GPU power", unit="watt"),)),
    Figure(GPU_TEMPERATURE_C, "azq_gpu_temperature_celsius", "Temperature of the GPU that a process computes on.",
           (Chart("GPU temperature", unit="celsius"),)),
    Figure(CPU_S, "azq_process_cpu_seconds", "CPU of a process and its children.",
           (Chart("CPU", "{{role}} {{worker}} cores", query="rate(azq_process_cpu_seconds_total[1m])"),), counts_up=True),
    Figure(RESIDENT_BYTES, "azq_process_resident_bytes", "Memory of a process and its children.",
           (Chart("Memory", "{{role}} {{worker}}", "bytes"),)),
    Figure(DISK_FREE_BYTES, "azq_disk_free_bytes", "Room where a learner's segment log grows.",
           (Chart("Room for segments", unit="bytes"),)),
    _rate("evaluations", "azq_worker_evaluations_per_s", "Leaves evaluated per second, by or for a process.",
          Chart("Evaluations by process", "{{role}} {{worker}}")),
    _rate("cache_hits", "azq_cache_hits_per_s", "Leaves per second that the evaluation cache answered.",
          _spared("known", "azq_cache_hits_per_s", "azq_cache_lookups_per_s")),
    _rate("merged_leaves", "azq_merged_leaves_per_s", "Leaves per second that shared another game's row of a request.",
          _spared("merged", "azq_merged_leaves_per_s", "azq_cache_lookups_per_s")),
    # They ended in a terminal or proven position.
    _rate("exact_simulations", "azq_exact_simulations_per_s", "Simulations per second that needed no evaluation.",
          _spared("exact", "azq_exact_simulations_per_s", "azq_worker_simulations_per_s")),
    _rate("cache_lookups", "azq_cache_lookups_per_s", "Leaves per second that the evaluation cache was asked for."),
    _rate("simulations", "azq_worker_simulations_per_s", "Simulations per second of a process."),
    _rate("plies"),
    _rate("games", "azq_worker_games_per_s", "Finished games per second of a process.", Chart("Games by worker")),
    Figure(RESENT, "azq_evaluations_resent", "Evaluation requests that were sent again.",
           (Chart("Evaluations asked for again", "{{worker}} /s", query="rate(azq_evaluations_resent_total[1m])"),), combine=total,
           counts_up=True),
    Figure(FALLBACKS, "azq_inference_fallbacks",
           "Steps down that forward passes took: smaller batches, op by op, float32 on the CPU.",
           (Chart("Forward passes that fell back", query="azq_inference_fallbacks_total"),), counts_up=True),
    Figure(RUNG, "azq_inference_rung",
           "How newest weights are evaluated: 0 graphs or compiled kernels, 1 op by op, 2 in float32, 3 in float32 on the CPU.",
           (Chart("Rung of forward passes"),)),
    Figure(WEIGHT_SWITCH_S, "azq_weight_switch_seconds", "Last swap of weights, from their publication to the switch.",
           (Chart("Weight switch", unit="s"),)),
    Figure(MEAN_BATCH, "azq_worker_mean_batch", "Leaves per forward pass, or per request of a searching process.", combine=mean),
    Figure(TABS, "azq_gateway_tabs", "Browsers' tabs connected to a gateway.", (Chart("Tabs"),)),
    Figure(DEAD_LETTERS),
    Figure(SAMPLES_PER_S),
)
# fmt: on

#: How each figure of pool children becomes their worker's, by its name in heartbeats.
OF_CHILDREN = {name: combine for figure in FIGURES for name, combine in figure.of_children()}


def gpu_texts(figures: Mapping[str, float]) -> list[str]:
    """What the driver of a GPU tells of it; nothing of a process without one."""
    load = ((GPU_BUSY, 1.0, "GPU {:.0%}"), (GPU_MEMORY_USED_BYTES, 2**-30, "{:.1f} GiB in use"))
    shown = (*load, (GPU_POWER_W, 1.0, "{:.0f} W"), (GPU_TEMPERATURE_C, 1.0, "{:.0f} °C"))
    return [form.format(factor * figures[name]) for name, factor, form in shown if name in figures]


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
