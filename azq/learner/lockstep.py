"""Training in lockstep: each version from the games of all before it, in the order of their numbers, by a fixed number of steps.

So the weights of a version follow from the run's settings alone, whichever workers played its games or died over them. Each version's
event has hashes of its samples and their order, so that two runs which diverge show where: samples, order or gradients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from azq.config import LearnerConfig
from azq.learner.data.batches import Batch, Feed, Order
from azq.replay.samples import Rules, Samples, samples_of
from azq.replay.window import Window
from azq.wire.messages import SampleEvent


class Lockstep:
    """Holds games back until all of their version are there, then adds them to the window; two threads may bring games and train."""

    def __init__(self, config: LearnerConfig, game: Rules, window: Window) -> None:
        self._config = config
        self._game = game
        self._window = window
        self._waiting: dict[int, SampleEvent] = {}  # by uid
        self._versions = 0  # whose games are in the window
        self._samples, self._order = "", hashlib.sha256()

    def bring(self, events: Iterable[SampleEvent]) -> None:
        """Takes finished games, in any order."""
        self._waiting.update((event.record.uid, event) for event in events)

    def steps_allowed(self, step: int) -> int:
        """Steps from here to the next version, once all games are there that it learns from; until then 0."""
        version = step // self._config.lockstep_steps + 1
        while self._versions < version:
            if not self._add_games_of(self._versions + 1):
                return 0
        return self._config.lockstep_steps - step % self._config.lockstep_steps

    def is_version(self, step: int) -> bool:
        """Whether the weights of this step are a version."""
        return step % self._config.lockstep_steps == 0

    def witnessed(self) -> dict[str, str]:
        """The newest version's hashes, as fields of `WeightEvent`; none for the first version, which is random."""
        return {"samples_sha256": self._samples, "order_sha256": self._order.hexdigest()} if self._samples else {}

    def saw(self, batch: Batch) -> None:
        """Hashes a batch that is trained on."""
        self._order.update(b"".join(self._rows(batch.samples)))
        self._order.update(b"" if batch.chosen is None else batch.chosen.tobytes())

    def _add_games_of(self, version: int) -> bool:
        games = self._config.lockstep_games
        uids = range((version - 1) * games + 1, version * games + 1)
        if any(uid not in self._waiting for uid in uids):
            return False
        before, events = self._window.total, [self._waiting.pop(uid) for uid in uids]
        self._window.add(samples_of(self._game, events, self._window.columns)[0])
        added = self._window.newest(np.arange(self._window.total - before))
        self._samples, self._order = hashlib.sha256(b"".join(sorted(self._rows(added)))).hexdigest(), hashlib.sha256()
        self._versions = version
        return True

    def _rows(self, samples: Samples) -> list[bytes]:
        """The bytes of each sample."""
        columns = [getattr(samples, name) for name in self._window.shapes]
        flat = [np.ascontiguousarray(column).reshape(len(samples), -1).view(np.uint8) for column in columns]
        return [row.tobytes() for row in np.concatenate(flat, axis=1)]


class WitnessedFeed(Feed):
    """Another feed, whose batches are hashed as they are handed out."""

    def __init__(self, feed: Feed, lockstep: Lockstep) -> None:
        self._feed = feed
        self._lockstep = lockstep

    def order(self, step: int, rows: int, size: int) -> Order:
        return self._feed.order(step, rows, size)

    @contextmanager
    def take(self, order: Order) -> Iterator[Batch]:
        with self._feed.take(order) as batch:
            self._lockstep.saw(batch)
            yield batch

    def close(self) -> None:
        self._feed.close()
