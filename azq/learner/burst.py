"""A few steps that all ranks take together: planned by rank 0, told to the others, timed by each."""

from __future__ import annotations

import time
from dataclasses import dataclass

from azq.learner.data.batches import Feed, Order
from azq.learner.step.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Burst:
    """Steps of one plan."""

    step: int  # the first
    steps: int
    rows: int  # samples of one step, of all ranks together
    size: int  # newest samples of the window that they are drawn from
    progress: float  # of the run


@dataclass(frozen=True, slots=True)
class Timing:
    """What a burst cost one rank."""

    steps: int
    rows: int  # of this rank in one step
    wall_s: float
    waited_s: float  # of it, for others

    @property
    def own_s(self) -> float:
        """Seconds of its own work."""
        return max(1e-9, self.wall_s - self.waited_s)

    @property
    def per_s(self) -> float:
        """Samples a second that it would train on if it waited for nobody."""
        return self.steps * self.rows / self.own_s


def run_burst(trainer: Trainer, feed: Feed, burst: Burst, order: Order) -> Timing:
    """Takes the steps; `order` is this rank's share of the first."""
    start = time.perf_counter()
    for _ in range(burst.steps):
        with trainer.phases("load"), feed.take(order) as batch:
            trainer.train_on(batch, burst.progress)
        order = order.following
    return Timing(burst.steps, order.rows, time.perf_counter() - start, 0.0)
