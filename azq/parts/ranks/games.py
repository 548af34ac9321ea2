"""What a rank other than 0 trains with where it is games: its part of them, read out of the run's folder or its store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from azq import logs
from azq.bus.base import Bus
from azq.config import LearnerConfig, RunSections
from azq.errors import WireError
from azq.games import Game
from azq.learner.data.batches import Draws, Feed, Order, feed_of
from azq.learner.opening import open_trainer
from azq.learner.rounds import TrainingRound
from azq.learner.step.trainer import Trainer
from azq.ledger.holder import LOCK_NAME
from azq.parts.ranks.follower import Follower
from azq.parts.ranks.rules import RankPlace, is_mine
from azq.parts.ranks.store_follower import StoreFollower
from azq.process.breaker import CircuitBreaker
from azq.replay.readers import SegmentFollower
from azq.replay.samples import Rules, count_samples, judge
from azq.replay.window import Purges, Window
from azq.store.objects import ObjectPrefix
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


def open_follower(
    run: str, directory: Path, sections: RunSections, game: Game, *, bus: Bus, place: RankPlace, prefix: ObjectPrefix | None = None
) -> Follower:
    """A rank other than 0, which sees the run's folder `directory`; raises what `LearnerSetup` raises of settings and segments.

    Where that is not the learner's, it reads games from the run's `prefix`.
    """
    config = sections.learner
    trainer, columns = open_trainer(sections, game, place.local)
    window = Window(game, -(-config.max_window // (place.ranks - 1)), columns)
    draws = Draws(sections.run.seed, trainer.num_symmetries, place.rank)
    pulls = prefix is not None and not (directory / LOCK_NAME).exists()
    folder = directory / (f"rank-{place.rank}" if pulls else "segments")

    def count(frame: bytes) -> int:
        return count_samples(decode(frame, SampleEvent))

    segments: StoreFollower | SegmentFollower = SegmentFollower(folder, config.max_window, count)
    if pulls and prefix:
        segments = StoreFollower(prefix, folder, config.max_window, count)
    work = GameWork(
        run=run,
        place=place,
        config=config,
        game=game,
        bus=bus,
        segments=segments,
        window=window,
        purges=Purges(folder),
        follows_orders=pulls,
        trainer=trainer,
        feed=feed_of(window, draws, config.prefetch_batches, trainer.device),
    )
    return Follower(run_name=run, place=place, config=config, bus=bus, work=work)
