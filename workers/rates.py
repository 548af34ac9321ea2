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
    metrics.RESENT: "resent",
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
        self._rates = [Rate() for _ in range(4)]
        self._seen = (0, 0, 0, 0)
        self._requests = Rate()
        self._seen_requests = 0
        self._resent = 0.0  # by the slice of now
        self._resent_before = 0.0  # by the slices before it

    def begin(self) -> None:
        """A new slice starts from zero."""
        self._seen, self._seen_requests = (0, 0, 0, 0), 0
        self._resent_before, self._resent = self._resent_before + self._resent, 0.0

    def figures(
        self, progress: Progress, run: str, *, resent: float = 0.0, busy: bool = True, phases: Mapping[str, float] | None = None
    ) -> Figures:
        """The figures as of now."""
        sums = (progress.games, progress.plies, progress.simulations, progress.evaluations)
        for rate, now, before in zip(self._rates, sums, self._seen, strict=True):
            rate.add(now - before)
        self._requests.add(progress.requests - self._seen_requests)
        self._seen, self._seen_requests = sums, progress.requests
        games, plies, simulations, evaluations = (rate.per_s() for rate in self._rates)
        requests = self._requests.per_s()
        batch = evaluations / requests if requests else 0.0
        self._resent = resent
        total, quantiles = self._resent_before + resent, progress.latencies_ms.quantiles()
        rates = (games, plies, simulations, evaluations, batch, progress.latency_ms, total)
        return Figures(busy, *rates, progress.weight_version, run, quantiles, phases or {})
