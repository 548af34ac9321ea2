"""What a run came to over games, steps, CPU-seconds or minutes: losses, graded errors and Elo as curves. Pure but for `read_course`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from azq.bus.base import Bus
from azq.ledger import Ledger
from azq.ledger.types import LedgerCounts, RunView
from azq.status.history import Firsts, read
from azq.status.observe import Standings, read_standing, read_weights
from azq.status.stages import UNSEEN, RunFirsts
from azq.status.strength import NAMES, Standing, game_of, trends
from azq.wire.messages import HistoryPoint, WeightEvent

AXES = ("minutes", "games", "steps", "cpu-s")
MEASURES = tuple(NAMES)  # of strength; what a game is judged by is the first of those that it has
FIGURES = (*MEASURES, "loss_policy", "loss_value")
PAUSE_MS = 60_000  # moments farther apart were not spent running
MOST_WEIGHTS = 10_000
MOST_POINTS = 240  # of a curve


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a run came; the names are those of `AXES`."""

    minutes: float  # spent running
    games: float  # finished
    steps: float
    cpu_s: float  # of self-play, inference and learner, as they tell it

    def on(self, axis: str) -> float:
        """Its place on an axis."""
        return float(getattr(self, axis.replace("-", "_")))


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A figure where a run was so far; `low` and `high` bound its 95 % interval, where it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    weight_version: int | None = None


Curves = dict[str, list[CurvePoint]]


@dataclass(frozen=True, slots=True)
class Course:
    """What was recorded of a run."""

    view: RunView
    counts: LedgerCounts
    points: Sequence[HistoryPoint]  # oldest first
    weights: Sequence[WeightEvent]  # newest first
    standing: Standing
    firsts: RunFirsts = UNSEEN

    @property
    def at_ms(self) -> NDArray[np.int64]:
        """(1 + N,) when the run was created, and when each point was recorded."""
        return np.array([self.view.record.created_ms, *(point.at_ms for point in self.points)], np.int64)

    @property
    def ran_s(self) -> NDArray[np.float64]:
        """(N,) seconds that it ran until each point, from the one before on."""
        passed_ms = np.diff(self.at_ms)
        return np.where((passed_ms > 0) & (passed_ms <= PAUSE_MS), passed_ms / 1000, 0.0)

    def on(self, axis: str) -> NDArray[np.float64]:
        """(1 + N,) how far it was at these moments, on one of the `AXES`."""
        if axis == "minutes":
            values = np.cumsum(self.ran_s) / 60
        elif axis == "cpu-s":
            values = np.cumsum(self.ran_s * [sum(point.cores.values()) for point in self.points])
        else:
            values = np.maximum.accumulate(np.array([point.games if axis == "games" else point.step for point in self.points], np.float64))
        return np.concatenate([[0.0], values])

    @property
    def reached(self) -> Reached:
        """How far it came."""
        return Reached(*(float(self.on(axis)[-1]) for axis in AXES))

    def curves(self, axis: str) -> Curves:
        """Its figures over an axis; a figure that was never known is not there."""
        places = self.on(axis)
        place = _placing(self.at_ms, places, {event.version: event for event in self.weights}, axis)
        trained = [number for number, point in enumerate(self.points) if point.step]
        sampled = [(float(places[1 + number]), self.points[number]) for number in trained[:: -max(1, -(-len(trained) // MOST_POINTS))]]
        game = game_of(self.view.record)

        def at(version: int | None, y: float, low: float | None = None, high: float | None = None) -> CurvePoint | None:
            x = None if version is None else place(version)
            return None if x is None else CurvePoint(x, y, low, high, version)

        curves: dict[str, list[CurvePoint | None]] = {
            **{
                kind: [at(measure.version, measure.value or 0.0, measure.low, measure.high) for measure in values]
                for kind, values in trends(game, self.standing).items()
            },
            "loss_policy": [CurvePoint(x, point.loss_policy) for x, point in sampled],
            "loss_value": [CurvePoint(x, point.loss_value) for x, point in sampled],
        }
        return {
            name: sorted(points, key=lambda point: point.x) for name, values in curves.items() if (points := list(filter(None, values)))
        }


def read_course(ledger: Ledger, bus: Bus, run: str, standings: Standings | None = None) -> Course:
    """Everything recorded of a run. Raises `NotFound` naming the runs there are, `BrokerError`."""
    view, standing = ledger.run(run), read_standing(bus, run, standings or Standings())
    weights = read_weights(bus, run, MOST_WEIGHTS)
    points, firsts = read(bus, run, 0), Firsts(bus, run).read()
    return Course(view, ledger.counts(run), points, weights, standing, firsts)


def _placing(
    at_ms: NDArray[np.int64], places: NDArray[np.float64], weights: Mapping[int, WeightEvent], axis: str
) -> Callable[[int], float | None]:
    """Where on an axis a weight version was published; None for an unknown one."""

    def place(version: int) -> float | None:
        event = weights.get(version)
        if event is None:
            return None
        return float(event.step) if axis == "steps" else float(np.interp(event.published_ms, at_ms, places))

    return place


def value_at(curve: Sequence[CurvePoint], x: float) -> float | None:
    """The figure at a place, between two points by proportion; None outside."""
    for left, right in pairwise(curve):
        if left.x <= x <= right.x:
            return left.y if right.x == left.x else left.y + (right.y - left.y) * (x - left.x) / (right.x - left.x)
    return curve[0].y if len(curve) == 1 and curve[0].x == x else None
