"""Rounds of training: a few steps that all ranks take together, planned by rank 0 and timed by each.

The learner's loop does not know who takes them: this process alone, or several ranks (`azq.learner.ranks.leader`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from azq.learner.data.batches import Feed, Order
from azq.learner.step.trainer import Trainer


@dataclass(frozen=True, slots=True)
class TrainingRound:
    step: int  # the first
    steps: int
    rows: int  # samples of one step, of all ranks together
    size: int  # newest samples of the window that they are drawn from
    progress: float  # of the run


@dataclass(frozen=True, slots=True)
class RoundTiming:
    """What a round cost one rank."""

    steps: int
    rows: int  # of this rank in one step
    wall_s: float
    waited_s: float = 0.0  # of it, for others

    @property
    def own_s(self) -> float:
        return max(1e-9, self.wall_s - self.waited_s)

    @property
    def per_s(self) -> float:
        """Samples a second that it would train on if it waited for nobody."""
        return self.steps * self.rows / self.own_s


def run_round(trainer: Trainer, feed: Feed, planned: TrainingRound, order: Order) -> RoundTiming:
    """Takes the steps; `order` is this rank's share of the first."""
    start = time.perf_counter()
    for _ in range(planned.steps):
        with trainer.phases("load"), feed.take(order) as batch:
            trainer.train_on(batch, planned.progress)
        order = order.following
    return RoundTiming(planned.steps, order.rows, time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class RanksFigures:
    """How the ranks do; times are means of the last round."""

    ranks: int = 1  # that there should be
    healthy: int = 1  # that train
    failures: int = 0  # ranks lost since the start
    batch_s: float = 0.0  # one step, waiting included
    sync_s: float = 0.0  # of it, waiting for other ranks: mean over the ranks
    efficiency: float = 1.0  # samples a second of all / the sum of what each would do if it waited for nobody
    shares: tuple[int, ...] = ()  # rows of a step, by rank


@dataclass(eq=False)
class Ranks:
    """Those that train: this process alone here; `azq.learner.ranks.leader.Leader` has others beside it."""

    trainer: Trainer
    feed: Feed

    def __post_init__(self) -> None:
        self._timing = RoundTiming(0, 0, 0.0)

    def look(self) -> None:
        """Takes in ranks that came and lets go of those that went; called every turn."""

    def train(self, planned: TrainingRound) -> int:
        """Takes a round's steps; returns how many were taken: fewer when a rank was lost over them."""
        self._timing = run_round(self.trainer, self.feed, planned, self.feed.order(planned.step, planned.rows, planned.size))
        return planned.steps

    def figures(self) -> RanksFigures:
        timing = self._timing
        return RanksFigures(batch_s=timing.wall_s / max(1, timing.steps), shares=(timing.rows,))

    def close(self) -> None:
        """Ends threads and connections."""
        self.feed.close()
