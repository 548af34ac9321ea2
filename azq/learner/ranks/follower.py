"""The side of every rank but 0: reads its part of the games out of the run's folder, and trains on what rank 0 says."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import LearnerConfig
from azq.errors import WireError
from azq.learner.data.batches import Feed, Order
from azq.learner.outage import Outage
from azq.learner.ranks.group import Group, Word, reach_store, timeouts
from azq.learner.ranks.leader import JOIN_S
from azq.learner.ranks.reducing import Shared, sync_of, train_together
from azq.learner.ranks.rules import Place, invited, is_mine
from azq.learner.step.sync import Alone
from azq.learner.step.trainer import Snapshot, Trainer
from azq.process.interrupts import StopSign
from azq.replay.browse import uid_of
from azq.replay.columns import Columns
from azq.replay.follow import SegmentFollower
from azq.replay.judging import judge
from azq.replay.samples import Rules
from azq.replay.window import Window
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import RankBeat, RankTable, SampleEvent

BEAT_LIFE_S = 5.0
POLL_S = 0.05  # between two looks for an invitation
GAMES_AT_ONCE = 64  # read between two words of rank 0, so that it does not wait long

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class FollowerParts:
    """What a follower is made of; `azq.learner.opening` puts it together."""

    run: str
    place: Place
    meetings: Path
    config: LearnerConfig
    game: Rules
    columns: Columns
    bus: Bus
    segments: SegmentFollower
    window: Window
    trainer: Trainer
    fit: Callable[[Mapping[str, Tensor]], None]  # lets the trainer train the network that such tensors are of
    feed: Feed


class Follower:
    """Waits for an invitation, trains while its group lasts, waits again. A lost group is no error: rank 0 makes a new one."""

    def __init__(self, parts: FollowerParts) -> None:
        self._parts = parts
        self._name = f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}"
        self._outage = Outage()
        self._epoch = 0  # the last one that it was in
        self._beaten: tuple[bool, float] = (False, 0.0)

    def run(self, stop: StopSign, on_turn: Callable[[], object] = lambda: None) -> None:
        """Trains until `stop` is set; `on_turn` is called at least every few seconds while rank 0 lives."""
        parts = self._parts
        try:
            while not stop.is_set():
                on_turn()
                read = self._take_in()
                if self._ready():
                    self._beat(free=True)
                    table = self._outage.attempt(self._table)
                    if table is not None and invited(table, self._name, self._epoch):
                        self._join(table, stop, on_turn)
                if not read:
                    stop.wait(POLL_S)
        finally:
            parts.feed.close()
            self._outage.attempt(lambda: parts.bus.delete(keys.rank(parts.run, parts.place.rank)))

    def _ready(self) -> bool:
        """True with samples enough that none is drawn all the time."""
        return len(self._parts.window) >= max(1, self._parts.config.min_window // self._parts.place.ranks // 2)

    def _table(self) -> RankTable | None:
        frame = self._parts.bus.get(keys.ranks(self._parts.run))
        return decode(frame, RankTable) if frame else None

    def _beat(self, *, free: bool) -> None:
        now = time.monotonic()
        if self._beaten[0] is free and now < self._beaten[1] + BEAT_LIFE_S / 4:
            return
        self._beaten = (free, now)
        parts = self._parts
        frame = encode(RankBeat(parts.place.rank, self._name, free, now_ms()))
        self._outage.attempt(lambda: parts.bus.put(keys.rank(parts.run, parts.place.rank), frame, life_s=BEAT_LIFE_S))

    def _take_in(self) -> int:
        """Adds this rank's part of the games that came to its window; returns how many were looked at."""
        parts, seen = self._parts, 0
        mine: list[SampleEvent] = []
        for frame in parts.segments.read(GAMES_AT_ONCE):
            seen += 1
            if not is_mine(uid_of(frame), parts.place.rank, parts.place.ranks):
                continue
            try:
                mine.append(decode(frame, SampleEvent))
            except WireError as error:
                log.warning("sample_refused", reason=str(error))
        judged = judge(parts.game, mine, parts.config.root_value_fraction, parts.columns)
        for samples in judged.samples:
            parts.window.add(samples)
        for reason in judged.refused.values():
            log.warning("sample_refused", reason=reason)
        return seen

    def _join(self, table: RankTable, stop: StopSign, on_turn: Callable[[], object]) -> None:
        """One epoch, from the invitation to its end."""
        parts = self._parts
        self._epoch = table.epoch
        self._beat(free=False)
        names = [name for _, name in table.members]
        place, size = 1 + names.index(self._name), 1 + len(names)
        group: Group | None = None
        try:
            store = reach_store(parts.meetings, table.meeting, table.host, size, timeout_s=JOIN_S)
            group = Group(store, table.epoch, place, size, parts.trainer.device, timeouts(parts.config.rank_timeout_s, place))
            log.info("rank_joined", rank=parts.place.rank, epoch=table.epoch, ranks=size)
            self._serve(group, stop, on_turn)
        except RuntimeError as error:
            log.warning("group_lost", rank=parts.place.rank, epoch=table.epoch, reason=str(error).partition("\n")[0][:200])
        parts.trainer.join(Alone(parts.trainer.module))
        if group is not None:
            group.close()

    def _serve(self, group: Group, stop: StopSign, on_turn: Callable[[], object]) -> None:
        sync = self._begin(group)
        while not stop.is_set() and self._obey(group, sync):
            on_turn()

    def _begin(self, group: Group) -> Shared:
        """Takes over rank 0's weights and optimiser."""
        parts, word = self._parts, group.hear()
        tensors = group.take_state(word)
        parts.fit(tensors)
        parts.trainer.restore(Snapshot(word.step, tensors))
        sync = sync_of(parts.trainer.module, parts.config, parts.trainer.device)
        parts.trainer.join(sync)
        return sync

    def _obey(self, group: Group, sync: Shared) -> bool:
        """Does what rank 0 says next; False when the group is to part."""
        word = group.hear()
        if word.op == "train":
            self._train(group, sync, word)
        self._beat(free=False)
        self._take_in()
        return word.op != "leave"

    def _train(self, group: Group, sync: Shared, word: Word) -> None:
        parts, burst = self._parts, word.burst
        assert burst is not None
        mine = max(1, min(len(parts.window), burst.size // max(1, parts.place.ranks - 1)))
        sync.share(group.place, word.rows)
        train_together(group, sync, parts.trainer, parts.feed, burst, Order(burst.step, word.rows[group.place], mine))
