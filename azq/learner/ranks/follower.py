"""The side of every rank but 0: reads its part of the games out of the run's folder, and trains on what rank 0 says."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import LearnerConfig
from azq.errors import WireError
from azq.learner.data.batches import Feed
from azq.learner.keeping.pulling import Puller
from azq.learner.ranks.group import RankGroup, Word, reach_store, timeouts
from azq.learner.ranks.leader import JOIN_S, said_of
from azq.learner.ranks.meeting import NAME, meet_over
from azq.learner.ranks.reducing import sync_of, train_together
from azq.learner.ranks.rules import RankPlace, invited, is_mine
from azq.learner.step.growth import RunNetworks
from azq.learner.step.trainer import Sync, Trainer
from azq.process.breaker import CircuitBreaker
from azq.process.interrupts import StopSign
from azq.replay.purges import Purges
from azq.replay.readers import SegmentFollower
from azq.replay.samples import Rules, judge
from azq.replay.window import Window
from azq.wire import keys
from azq.wire.codec import decode, encode, uid_of
from azq.wire.messages import PurgeOrders, RankBeat, RankTable, SampleEvent

BEAT_LIFE_S = 5.0
POLL_S = 0.05  # between two looks for an invitation
ORDERS_EVERY_S = 2.0
GAMES_AT_ONCE = 64  # read between two words of rank 0, so that it does not wait long

log = logs.get(__name__)


@dataclass(kw_only=True, eq=False)
class Follower:
    """Waits for an invitation, trains while its group lasts, waits again. A lost group is no error: rank 0 makes a new one."""

    run_name: str
    place: RankPlace
    meetings: Path
    config: LearnerConfig
    game: Rules
    bus: Bus
    segments: SegmentFollower | Puller
    window: Window
    purges: Purges  # whose games stay out of it, as rank 0 writes it down
    trainer: Trainer
    networks: RunNetworks
    feed: Feed
    follows_orders: bool = False  # to purge: in the control plane, for rank 0 writes none where it sees

    def __post_init__(self) -> None:
        self._name = f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}"
        self._broker = CircuitBreaker()
        self._epoch = 0  # the last one that it was in
        self._ordered_s = 0.0
        self._beaten: tuple[bool, float] = (False, 0.0)

    def run(self, stop: StopSign, on_turn: Callable[[], object] = lambda: None) -> None:
        """Trains until `stop` is set; `on_turn` is called at least every few seconds while rank 0 lives."""
        try:
            while not stop.is_set():
                on_turn()
                read = self._take_in()
                if self._ready():
                    self._beat(free=True)
                    table = self._broker.attempt(self._table)
                    if table is not None and invited(table, self._name, self._epoch):
                        self._join(table, stop, on_turn)
                if not read:
                    stop.wait(POLL_S)
        finally:
            self.feed.close()
            self._broker.attempt(lambda: self.bus.delete(keys.rank(self.run_name, self.place.rank)))

    def _ready(self) -> bool:
        """True with samples enough that none is drawn all the time."""
        return len(self.window) >= max(1, self.config.min_window // self.place.ranks // 2)

    def _table(self) -> RankTable | None:
        frame = self.bus.get(keys.ranks(self.run_name))
        return decode(frame, RankTable) if frame else None

    def _beat(self, *, free: bool) -> None:
        now = time.monotonic()
        if self._beaten[0] is free and now < self._beaten[1] + BEAT_LIFE_S / 4:
            return
        self._beaten = (free, now)
        frame = encode(RankBeat(self.place.rank, self._name, free, now_ms(), said_of(self.place.rank, self.trainer)))
        self._broker.attempt(lambda: self.bus.put(keys.rank(self.run_name, self.place.rank), frame, life_s=BEAT_LIFE_S))

    def _take_in(self) -> int:
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
        judged = judge(self.game, mine, self.config.root_value_fraction, self.window.columns)
        for samples in judged.samples:
            self.window.add(samples)
        for reason in judged.refused.values():
            log.warning("sample_refused", reason=reason)
        return seen

    def _follow_orders(self) -> None:
        """What the owner ordered, like rank 0, every few seconds."""
        if time.monotonic() < self._ordered_s + ORDERS_EVERY_S:
            return
        self._ordered_s = time.monotonic()
        frame = self._broker.attempt(lambda: self.bus.get(keys.purges(self.run_name)))
        for worker in self.purges.order(decode(frame, PurgeOrders).until_ms) if frame else ():
            self.window.drop(worker)

    def _join(self, table: RankTable, stop: StopSign, on_turn: Callable[[], object]) -> None:
        """One epoch, from the invitation to its end."""
        self._epoch = table.epoch
        self._beat(free=False)
        names = [name for _, name in table.members]
        place, size = 1 + names.index(self._name), 1 + len(names)
        group: RankGroup | None = None
        try:
            if NAME.fullmatch(table.meeting):
                store, _ = meet_over(self.bus, self.run_name, table.meeting, table.host, timeout_s=JOIN_S)
            else:
                store = reach_store(self.meetings, table.meeting, table.host, size, timeout_s=JOIN_S)
            group = RankGroup(store, table.epoch, place, size, self.trainer.device, timeouts(self.config.rank_timeout_s, place))
            log.info("rank_joined", rank=self.place.rank, epoch=table.epoch, ranks=size)
            self._serve(group, stop, on_turn)
        except RuntimeError as error:
            log.warning("group_lost", rank=self.place.rank, epoch=table.epoch, reason=str(error).partition("\n")[0][:200])
        self.trainer.leave()
        if group is not None:
            group.close()

    def _serve(self, group: RankGroup, stop: StopSign, on_turn: Callable[[], object]) -> None:
        sync = self._begin(group)
        while not stop.is_set() and self._obey(group, sync):
            on_turn()

    def _begin(self, group: RankGroup) -> Sync:
        """Takes over rank 0's weights and optimiser."""
        word = group.hear()
        tensors = group.take_state(word)
        if (network := self.networks.fitting(tensors, self.trainer.module)) is not self.trainer.module:
            self.trainer.replace(network)
        self.trainer.restore(tensors, word.step)
        sync = sync_of(self.trainer.module, self.config, self.trainer.device)
        self.trainer.join(sync)
        return sync

    def _obey(self, group: RankGroup, sync: Sync) -> bool:
        """Does what rank 0 says next; False when the group is to part."""
        word = group.hear()
        if word.op == "train":
            self._train(group, sync, word)
        self._beat(free=False)
        self._take_in()
        return word.op != "leave"

    def _train(self, group: RankGroup, sync: Sync, word: Word) -> None:
        planned = word.planned
        assert planned is not None
        mine = max(1, min(len(self.window), planned.size // max(1, self.place.ranks - 1)))
        sync.share(group.place, word.rows)
        order = self.feed.order(planned.step, word.rows[group.place], mine)
        train_together(group, sync, self.trainer, self.feed, planned, order)
