"""A worker's figures from those of its children, under the names of `azq.metrics`. Pure but for the clock inside `Rate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from azq import metrics
from azq.actor.progress import Progress
from azq.metrics import Rate
from azq.phases import merged
from workers.board import Figures

_SUMS = {
    metrics.GAMES_PER_S: "games_per_s",
    metrics.PLIES_PER_S: "plies_per_s",
    metrics.SIMULATIONS_PER_S: "simulations_per_s",
    metrics.EVALUATIONS_PER_S: "evaluations_per_s",
    metrics.EXACT_SIMULATIONS_PER_S: "exact_simulations_per_s",
    metrics.CACHE_LOOKUPS_PER_S: "cache_lookups_per_s",
    metrics.CACHE_HITS_PER_S: "cache_hits_per_s",
    metrics.MERGED_LEAVES_PER_S: "merged_leaves_per_s",
    metrics.RESENT: "resent",
}
#: Figures of `Progress` whose rates are figures of the board, by the board's names.
_COUNTED = {
    "games_per_s": "games",
    "plies_per_s": "plies",
    "simulations_per_s": "simulations",
    "evaluations_per_s": "evaluations",
    "exact_simulations_per_s": "exact_simulations",
    "cache_lookups_per_s": "cache_lookups",
    "cache_hits_per_s": "cache_hits",
    "merged_leaves_per_s": "merged_leaves",
}
_MEANS = {metrics.MEAN_BATCH: "mean_batch", metrics.EVAL_LATENCY_MS: "latency_ms"}


def merge(figures: Sequence[Figures]) -> dict[str, float]:
    """Sums of rates, and means weighted by evaluations; {} where no child has worked lately."""
    if not figures:
        return {}
    weight = sum(child.evaluations_per_s for child in figures)
    sums = {name: float(sum(getattr(child, field) for child in figures)) for name, field in _SUMS.items()}
    means = {
        name: float(sum(getattr(child, field) * child.evaluations_per_s for child in figures) / weight) if weight else 0.0
        for name, field in _MEANS.items()
    }
    return {**sums, **means, **_slowest(figures), **merged([child.phases for child in figures if child.phases])}


def _slowest(figures: Sequence[Figures]) -> dict[str, float]:
    """Latency quantiles of the child that waits longest; quantiles of several children do not add up to one."""
    columns = zip(*(child.latency_quantiles_ms for child in figures), strict=True)
    return {metrics.at_quantile(metrics.EVAL_LATENCY_MS, at): max(column) for at, column in zip(metrics.QUANTILES, columns, strict=True)}


def versions(figures: Sequence[Figures]) -> dict[str, int]:
    """The newest weight version each run's games were searched with."""
    newest: dict[str, int] = {}
    for child in figures:
        if child.run:
            newest[child.run] = max(newest.get(child.run, 0), child.weight_version)
    return newest


class Meter:
    """Turns the running sums of a slice into rates, over slices."""

    def __init__(self) -> None:
        self._rates = {name: Rate() for name in (*_COUNTED.values(), "requests")}
        self._seen = dict.fromkeys(self._rates, 0)
        self._resent = 0.0  # by the slice of now
        self._resent_before = 0.0  # by the slices before it

    def begin(self) -> None:
        """A new slice starts from zero."""
        self._seen = dict.fromkeys(self._rates, 0)
        self._resent_before, self._resent = self._resent_before + self._resent, 0.0

    def figures(
        self, progress: Progress, run: str, *, resent: float = 0.0, busy: bool = True, phases: Mapping[str, float] | None = None
    ) -> Figures:
        """The figures as of now."""
        for name, rate in self._rates.items():
            count = getattr(progress, name)
            rate.add(count - self._seen[name])
            self._seen[name] = count
        rates = {field: self._rates[name].per_s() for field, name in _COUNTED.items()}
        requests = self._rates["requests"].per_s()
        self._resent = resent
        return Figures(
            busy,
            mean_batch=rates["evaluations_per_s"] / requests if requests else 0.0,
            latency_ms=progress.latency_ms,
            resent=self._resent_before + resent,
            weight_version=progress.weight_version,
            run=run,
            latency_quantiles_ms=progress.latencies_ms.quantiles(),
            phases=phases or {},
            **rates,
        )
