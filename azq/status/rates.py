"""How fast a run goes: from counters of its own, over some of its active time, whatever the rest of the fleet does. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from azq.ledger.types import LedgerCounts
from azq.status.workers import NetworkUse
from azq.wire.messages import HistoryPoint, LearnerStatus

WINDOW_MS = 15_000  # of active time, at least
KEPT_MS = 60_000  # so long ago a counter may have moved last, so that games which take long are no zeros in between

COUNTERS = {
    "games_per_s": "games",
    "simulations_per_s": "simulations",
    "evaluations_per_s": "evaluations",
    "samples_per_s": "trained",
    "steps_per_s": "step",
}


@dataclass(frozen=True, slots=True)
class Pace:
    """What a run does in a second; means are 0 where nothing was evaluated."""

    games_per_s: float = 0.0
    simulations_per_s: float = 0.0  # of self-play, as the next
    evaluations_per_s: float = 0.0
    samples_per_s: float = 0.0  # trained on
    steps_per_s: float = 0.0
    mean_batch: float = 0.0  # leaves of a forward pass for this run
    network_busy: float = 0.0  # share of wall time in them, mean over the inference workers that serve it


STILL = Pace()


def counters(active_ms: int, counts: LedgerCounts, learner: LearnerStatus) -> HistoryPoint:
    """A run's counters at a moment; of a point's fields those alone."""
    return HistoryPoint(
        0,
        active_ms=active_ms,
        games=counts.finished,
        simulations=counts.simulations,
        evaluations=counts.evaluations,
        requests=counts.requests,
        samples=learner.samples_inserted,
        trained=learner.samples_consumed,
        step=learner.step,
    )


def rates(points: Sequence[HistoryPoint], now: HistoryPoint, network: NetworkUse | None = None) -> Pace:
    """The rates at `now` by the counters of points before it, oldest first; with none, since the run's beginning.

    A counter that fell, as a learner's does that goes on from a checkpoint, counts from there. `network` is what inference workers say of
    the run; without it a batch is a request.
    """
    per_s = {name: _per_s(points, now, counter) for name, counter in COUNTERS.items()}
    if network is None:
        requests_per_s = _per_s(points, now, "requests")
        return Pace(**per_s, mean_batch=per_s["evaluations_per_s"] / requests_per_s if requests_per_s else 0.0)
    return Pace(**per_s, **asdict(network))


def latest(point: HistoryPoint | None, now: HistoryPoint, network: NetworkUse | None = None) -> Pace:
    """The rates as the newest point has them; where it is old, since then."""
    if point is None or not point.active_ms or now.active_ms - point.active_ms >= WINDOW_MS:
        return rates([point] if point and point.active_ms else [], now, network)
    return Pace(**{name: getattr(point, name) for name in Pace.__slots__})


def _per_s(points: Sequence[HistoryPoint], now: HistoryPoint, counter: str) -> float:
    count, base = getattr(now, counter), None if points else HistoryPoint(0)
    for point in reversed(points):
        if point.active_ms > now.active_ms or getattr(point, counter) > count:
            break
        base = point
        if now.active_ms - point.active_ms >= WINDOW_MS and getattr(point, counter) < count:
            break
    if base is None or base.active_ms == now.active_ms:
        return 0.0
    grown: float = count - getattr(base, counter)
    return 1000.0 * grown / (now.active_ms - base.active_ms)
