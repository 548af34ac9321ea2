"""Who trains: this process alone, or several ranks together (`azq.learner.ranks.leader`). The learner's loop does not know which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from azq.learner.burst import Burst, Timing, run_burst
from azq.learner.data.batches import Feed, Order
from azq.learner.step.trainer import Trainer


@dataclass(frozen=True, slots=True)
class TeamFigures:
    """How the ranks do; times are means of the last burst."""

    ranks: int = 1  # that there should be
    healthy: int = 1  # that train
    failures: int = 0  # ranks lost since the start
    batch_s: float = 0.0  # one step, waiting included
    sync_s: float = 0.0  # of it, waiting for other ranks: mean over the ranks
    efficiency: float = 1.0  # samples a second of all / the sum of what each would do if it waited for nobody
    shares: tuple[int, ...] = ()  # rows of a step, by rank


class Team(Protocol):
    """What the learner's loop asks of those that train; `Solo` is the double that is one process."""

    def look(self) -> None:
        """Takes in ranks that came and lets go of those that went; called every turn."""

    def train(self, burst: Burst) -> int:
        """Takes a burst's steps; returns how many were taken: fewer when a rank was lost over them."""

    def figures(self) -> TeamFigures:
        """How the ranks do."""

    def close(self) -> None:
        """Ends threads and connections."""


class Solo:
    """One process."""

    def __init__(self, trainer: Trainer, feed: Feed) -> None:
        self._trainer = trainer
        self._feed = feed
        self._timing = Timing(0, 0, 0.0, 0.0)

    def look(self) -> None:
        """Nobody comes or goes."""

    def train(self, burst: Burst) -> int:
        """Takes all of the burst's steps."""
        self._timing = run_burst(self._trainer, self._feed, burst, Order(burst.step, burst.rows, burst.size))
        return burst.steps

    def figures(self) -> TeamFigures:
        """One rank that waits for nobody."""
        timing = self._timing
        return TeamFigures(batch_s=timing.wall_s / max(1, timing.steps), shares=(timing.rows,))

    def close(self) -> None:
        """Ends the feed's thread."""
        self._feed.close()
