"""What finished games say by version, and whether it lies within bounds. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from azq.config import LearnerConfig
from azq.replay.samples import POLICY_TOLERANCE, Rules
from azq.wire.arrays import arrays_of
from azq.wire.messages import SampleEvent


@dataclass(frozen=True, slots=True)
class SoakLine:
    """One figure, its bounds, and whether it keeps them."""

    what: str
    found: float
    least: float | None = None
    most: float | None = None

    @property
    def passed(self) -> bool:
        return (-math.inf if self.least is None else self.least) <= self.found <= (math.inf if self.most is None else self.most)

    @property
    def bounds(self) -> str:
        """In words."""
        bounds = (("at least", self.least), ("at most", self.most))
        return " and ".join(f"{word} {value:g}" for word, value in bounds if value is not None)


@dataclass(frozen=True, slots=True)
class GameFigures:
    lines: Sequence[SoakLine]
    curves: Mapping[str, Sequence[float]]  # a point a version


def slope_per_100(curve: Sequence[float]) -> float:
    """By how much a curve rises in 100 points, by least squares; 0 for fewer than two."""
    return 100 * float(np.polyfit(range(len(curve)), curve, 1)[0]) if len(curve) > 1 else 0.0


def game_figures(game: Rules, events: Sequence[SampleEvent], learner: LearnerConfig, iterations: int) -> GameFigures:
    """Of the games of so many versions, ordered by their numbers."""
    by_version = [list(group) for _, group in groupby(events, lambda event: learner.version_for(event.record.uid))][:iterations]
    rows = [_of_version(game, group, learner) for group in by_version]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    lines = [
        SoakLine("versions whose games are not all in the log", sum(len(group) != learner.lockstep_games for group in by_version), most=0),
        SoakLine("plies searched with other weights than their version's", sum(columns.pop("stale")), most=0),
        SoakLine("policy targets that do not sum to 1", sum(columns.pop("unsummed")), most=0),
        SoakLine("largest size of a root value", max(columns.pop("largest value")), most=1.0),
        SoakLine("least mean entropy of a version's targets, nats", min(columns["entropy of targets, nats"]), least=0.01),
        SoakLine("largest share of one result in a version", max(columns["share of first player's wins"]), most=0.999),
    ]
    return GameFigures(lines, columns)


def _of_version(game: Rules, events: Iterable[SampleEvent], learner: LearnerConfig) -> dict[str, float]:
    stale, unsummed, largest, entropies, lengths, wins = 0, 0, 0.0, [0.0], [], []
    for event in events:
        arrays = arrays_of(event.record, game.num_distinct_actions(), game.value_size(), f"game {event.record.uid}")
        searched = arrays["simulations"] > 0
        policies = arrays["policies"][searched].astype(np.float64)
        stale += int((arrays["weight_versions"][searched] != learner.version_for(event.record.uid)).sum())
        unsummed += int((np.abs(policies.sum(1) - 1) > POLICY_TOLERANCE).sum())
        largest = max(largest, float(np.abs(arrays["root_values"][searched]).max(initial=0.0)))
        entropies += (-(policies * np.log(policies, where=policies > 0, out=np.zeros_like(policies))).sum(1)).tolist()
        lengths.append(len(searched))
        wins.append(event.returns[0] > 0)
    return {
        "stale": stale,
        "unsummed": unsummed,
        "largest value": largest,
        "entropy of targets, nats": float(np.mean(entropies)),
        "plies of a game": float(np.mean(lengths)),
        "share of first player's wins": float(np.mean(wins)),
    }
