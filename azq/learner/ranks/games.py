"""What a rank other than 0 trains with where it is games: its part of them, read out of the run's folder or its store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from azq import logs
from azq.bus.base import Bus
from azq.config import LearnerConfig
from azq.errors import WireError
from azq.learner.data.batches import Feed, Order
from azq.learner.ranks.rules import RankPlace, is_mine
from azq.learner.replication.downloader import StoreFollower
from azq.learner.rounds import TrainingRound
from azq.learner.step.growth import RunNetworks
from azq.learner.step.trainer import Trainer
from azq.process.breaker import CircuitBreaker
from azq.replay.readers import SegmentFollower
from azq.replay.samples import Rules, judge
from azq.replay.window import Purges, Window
from azq.wire import keys
from azq.wire.codec import decode, uid_of
from azq.wire.machines import PurgeOrders
from azq.wire.messages import SampleEvent

ORDERS_EVERY_S = 2.0
GAMES_AT_ONCE = 64  # read between two words of rank 0, so that it does not wait long

log = logs.get(__name__)


@dataclass(kw_only=True, eq=False)
class GameWork:
    """The rank's window of games: a `RankWork`."""

    run: str
    place: RankPlace
    config: LearnerConfig
    game: Rules
    bus: Bus
    segments: SegmentFollower | StoreFollower
    window: Window
    purges: Purges  # whose games stay out of it, as rank 0 writes it down
    trainer: Trainer
    networks: RunNetworks
    feed: Feed
    follows_orders: bool = False  # to purge: in the control plane, for rank 0 writes none where it sees

    def __post_init__(self) -> None:
        self._broker = CircuitBreaker()
        self._ordered_s = 0.0

    def ready(self) -> bool:
        """True with samples enough that none is drawn all the time."""
        return len(self.window) >= max(1, self.config.min_window // self.place.ranks // 2)

    def take_in(self) -> int:
        """Adds this rank's part of the games that came to its window; returns how many were looked at."""
        if self.follows_orders:
            self._follow_orders()
        for worker in self.purges.reload():
            self.window.drop(worker)
        seen = 0
        mine: list[SampleEvent] = []
        for frame in self.segments.read(GAMES_AT_ONCE):
            seen += 1
            if not is_mine(uid_of(frame), self.place.rank, self.place.ranks):
                continue
            try:
                if not self.purges.drops(event := decode(frame, SampleEvent)):
                    mine.append(event)
            except WireError as error:
                log.warning("sample_refused", reason=str(error))
        judged = judge(self.game, mine, self.window.columns)
        for samples in judged.samples:
            self.window.add(samples)
        for reason in judged.refused.values():
            log.warning("sample_refused", reason=reason)
        return seen

    def restore(self, tensors: Mapping[str, Tensor], step: int) -> None:
        if (network := self.networks.fitting(tensors, self.trainer.module)) is not self.trainer.module:
            self.trainer.replace(network)
        self.trainer.restore(tensors, step)

    def share(self, planned: TrainingRound, rows: tuple[int, ...], place: int) -> Order:
        mine = max(1, min(len(self.window), planned.size // max(1, self.place.ranks - 1)))
        return self.feed.order(planned.step, rows[place], mine)

    def _follow_orders(self) -> None:
        """What the owner ordered, like rank 0, every few seconds."""
        if time.monotonic() < self._ordered_s + ORDERS_EVERY_S:
            return
        self._ordered_s = time.monotonic()
        frame = self._broker.attempt(lambda: self.bus.get(keys.purges(self.run)))
        for worker in self.purges.order(decode(frame, PurgeOrders).until_ms) if frame else ():
            self.window.drop(worker)
