"""Rounds of training: a few steps that all ranks take together, planned by rank 0 and timed by each.

The learner's loop is the same for this process alone and for several ranks (`azq.parts.ranks.leader`).
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from azq.learner.step.stepper import Stepper
from azq.wire.messages import RankStatus

AnyStepper = TypeVar("AnyStepper", bound=Stepper)


@dataclass(frozen=True, slots=True)
class TrainingRound:
    step: int  # the first
    steps: int
    rows: int  # samples of one step, of all ranks together
    size: int  # newest samples of the window that they are drawn from
    progress: float  # of the run


@dataclass(frozen=True, slots=True)
class RoundTiming:
    """One rank's times of a round."""

    steps: int
    rows: int  # of this rank in one step
    wall_s: float
    waited_s: float = 0.0  # of it, for others

    @property
    def batch_s(self) -> float:
        return self.wall_s / max(1, self.steps)

    @property
    def sync_s(self) -> float:
        """Of a step, waiting for others."""
        return self.waited_s / max(1, self.steps)

    @property
    def own_s(self) -> float:
        return max(1e-9, self.wall_s - self.waited_s)

    @property
    def per_s(self) -> float:
        """Samples a second that it would train on if it waited for no other."""
        return self.steps * self.rows / self.own_s


class Batches(Protocol):
    """Gives the batches of steps; `azq.learner.data.batches.Feed` draws them from a window of games."""

    def order(self, step: int, rows: int, size: int) -> Any:
        """An order of the first `rows` of a step's batch, out of `size` samples; it has `rows`, and the next step's as `following`."""

    def take(self, order: Any) -> AbstractContextManager[Any]:
        """The batch of an order, valid within the context."""

    def close(self) -> None:
        """Ends its threads."""


def run_round(trainer: Stepper, feed: Batches, planned: TrainingRound, order: Any) -> RoundTiming:
    """Takes the steps; `order` is this rank's share of the first."""
    start = time.perf_counter()
    for _ in range(planned.steps):
        with trainer.phases("load"), feed.take(order) as batch:
            trainer.train_on(batch, planned.progress)
        order = order.following
    return RoundTiming(planned.steps, order.rows, time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class RanksFigures:
    """Figures of the ranks; times are means of the last round."""

    ranks: int = 1  # wanted
    healthy: int = 1  # training
    failures: int = 0  # ranks lost since the start
    batch_s: float = 0.0  # one step, waiting included
    sync_s: float = 0.0  # of it, waiting for other ranks: mean over the ranks
    efficiency: float = 1.0  # samples a second of all / the sum of what each would do if it waited for no other
    shares: tuple[int, ...] = ()  # rows of a step, by rank
    by_rank: tuple[RankStatus, ...] = ()  # empty: this process trains alone


@dataclass(eq=False)
class Ranks(Generic[AnyStepper]):
    """The processes that train: here this one alone, with `azq.parts.ranks.leader.Leader` several."""

    trainer: AnyStepper
    feed: Batches

    def __post_init__(self) -> None:
        self._timing = RoundTiming(0, 0, 0.0)

    def poll(self) -> None:
        """Admits waiting ranks and drops lost ones; called every turn."""

    def train(self, planned: TrainingRound) -> int:
        """Takes a round's steps; returns how many: fewer where ranks have just met, none where one was lost over them."""
        self._timing = run_round(self.trainer, self.feed, planned, self.feed.order(planned.step, planned.rows, planned.size))
        return planned.steps

    def figures(self) -> RanksFigures:
        timing = self._timing
        return RanksFigures(batch_s=timing.batch_s, shares=(timing.rows,))

    def close(self) -> None:
        """Ends threads and connections."""
        self.feed.close()
