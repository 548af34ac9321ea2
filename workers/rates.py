"""A worker's figures from those of its children, under the names of `azq.metrics`. Pure but for the clock inside `Rate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from azq import metrics, phases
from azq.actor.progress import Progress
from azq.metrics import Rate
from workers.board import ChildFigures

_COUNTERS = {figure.name: figure.counter for figure in metrics.FIGURES if figure.counter}


def merge(children: Sequence[ChildFigures]) -> dict[str, float]:
    """The children's figures as their worker's, as each asks for; {} where no child has worked lately."""
    if not children:
        return {}
    weights = [child.rates.get(metrics.EVALUATIONS_PER_S, 0.0) for child in children]
    merged = {name: combine([child.rates.get(name, 0.0) for child in children], weights) for name, combine in metrics.OF_CHILDREN.items()}
    return merged | phases.merged([spent for child in children if (spent := phases.of_heartbeat(child.rates))])


def versions(children: Sequence[ChildFigures]) -> dict[str, int]:
    """The newest weight version each run's games were searched with."""
    newest: dict[str, int] = {}
    for child in children:
        if child.run:
            newest[child.run] = max(newest.get(child.run, 0), child.weight_version)
    return newest


class Meter:
    """Turns the running sums of a slice into rates, over slices."""

    def __init__(self) -> None:
        self._rates = {name: Rate() for name in (*_COUNTERS.values(), "requests")}
        self._resent = 0.0  # by the slice of now
        self._resent_before = 0.0  # by the slices before it
        self.begin()

    def begin(self) -> None:
        """A new slice starts from zero."""
        self._seen = dict.fromkeys(self._rates, 0)
        self._resent_before, self._resent = self._resent_before + self._resent, 0.0

    def figures(
        self, progress: Progress, run: str, *, resent: float = 0.0, busy: bool = True, spent: Mapping[str, float] | None = None
    ) -> ChildFigures:
        """The figures as of now; `spent` says where the time goes, by phase."""
        counts = progress.counts
        for name, rate in self._rates.items():
            rate.add(counts.get(name, 0) - self._seen[name])
            self._seen[name] = counts.get(name, 0)
        self._resent = resent
        rates = {name: self._rates[counter].per_s() for name, counter in _COUNTERS.items()}
        requests = self._rates["requests"].per_s()
        gauges = {
            metrics.MEAN_BATCH: rates[metrics.EVALUATIONS_PER_S] / requests if requests else 0.0,
            metrics.EVAL_LATENCY_MS: progress.latency_ms,
            metrics.RESENT: self._resent_before + resent,
            **progress.latencies_ms.named(metrics.EVAL_LATENCY_MS),
        }
        return ChildFigures(busy, run, progress.weight_version, {**rates, **gauges, **(spent or {})})
