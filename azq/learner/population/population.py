"""Several learners on one run's samples: each step all train on the same batch, and now and then the worst becomes like the best.

Self-play costs what it costs with one. The first is the best as of the last comparison: its weights are published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from azq import logs
from azq.config import LearnerConfig
from azq.learner.checkpoint import Checkpoint
from azq.learner.data.batches import Feed
from azq.learner.population.rules import explored, first_members, held_out, ranked, settings_of
from azq.learner.rounds import MEMBER, Ranks, TrainingRound, run_round
from azq.learner.step.growth import under
from azq.learner.step.trainer import Trainer
from azq.replay.window import Window

log = logs.get(__name__)


class Population(Ranks[Trainer]):
    """The members of one process; `others` are as untrained as they were made, `found` is what the run goes on from."""

    def __init__(
        self,
        trainer: Trainer,
        others: Sequence[Trainer],
        feed: Feed,
        window: Window,
        config: LearnerConfig,
        seed: int,
        found: Checkpoint | None = None,
    ) -> None:
        super().__init__(trainer, feed)
        self._window = window
        self._config = config
        self._seed = seed
        self.trainers = (trainer, *others)
        known = found.state.members[: len(self.trainers)] if found else ()
        self.members = (*known, *first_members(len(self.trainers), seed)[len(known) :])
        for place, one in enumerate(others, 1):
            one.phases = trainer.phases
            if found is not None and place < len(known):
                one.restore(under(MEMBER.format(place), found.tensors), trainer.step)
            else:
                one.restore(*trainer.snapshot())
        self._settle()

    def train(self, planned: TrainingRound) -> int:
        held = held_out(planned.size)
        order = self.feed.order(planned.step, planned.rows, planned.size - held)
        self._timing = run_round(self.trainer, self.feed, planned, replace(order, total=order.total - held), self.trainers[1:])
        if held and self.trainer.step % self._config.population_every_steps == 0:
            self._compare(held)
        return planned.steps

    def _compare(self, held: int) -> None:
        """The best comes first, and the worst goes on from its weights, with settings near its own."""
        samples = self._window.newest(np.arange(held))
        losses = [self._worth(one.losses_on(samples)) for one in self.trainers]
        self.members = tuple(structs.replace(member, loss=loss) for member, loss in zip(self.members, losses, strict=True))
        order, step = ranked(losses), self.trainer.step
        if not math.isfinite(losses[order[0]]):
            return  # all diverged, which the next look at the losses says
        best = order[0]
        if best:
            self._swap(0, best)
        last = order[-1] or best  # the worst was the first, and so is now where the best was
        self.trainers[last].restore(*self.trainer.snapshot())
        kept, first = list(self.members), self.members[0]
        kept[last] = explored(first, self._seed, last, step)
        self.members = tuple(kept)
        self._settle()
        log.info("population_compared", step=step, losses=[round(loss, 4) for loss in losses], first=best, replaced=last)

    def _worth(self, losses: dict[str, float]) -> float:
        """By the run's own weights: each member's would praise itself."""
        return losses["policy"] + self._config.value_weight * losses["value"]

    def _swap(self, one: int, other: int) -> None:
        first, second = self.trainers[one].snapshot(), self.trainers[other].snapshot()
        self.trainers[one].restore(*second)
        self.trainers[other].restore(*first)
        order = list(self.members)
        order[one], order[other] = order[other], order[one]
        self.members = tuple(order)

    def _settle(self) -> None:
        for one, member in zip(self.trainers, self.members, strict=True):
            one.settle(settings_of(member, self._config))
