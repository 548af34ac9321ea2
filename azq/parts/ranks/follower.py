"""Every rank but 0: trains by rank 0's commands on its share of the data."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import RankSettings
from azq.learner.rounds import Batches, TrainingRound
from azq.learner.step.stepper import Stepper
from azq.parts.ranks.group import Command, RankGroup, Rendezvous, listen_towards
from azq.parts.ranks.leader import JOIN_S, status_of
from azq.parts.ranks.reducing import sync_of, train_together
from azq.parts.ranks.rules import RankPlace, invited
from azq.process.breaker import CircuitBreaker
from azq.process.interrupts import StopSign
from azq.process.liveness import WorkWatch
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import RankBeat, RankTable

BEAT_LIFE_S = 5.0
POLL_S = 0.05  # between two reads of the membership table

log = logs.get(__name__)


class RankWork(Protocol):
    """The data and trainer of a rank other than 0: games (`azq.parts.ranks.games`) or a module's draws (`azq.parts.ranks.plain`)."""

    @property
    def trainer(self) -> Stepper: ...

    @property
    def feed(self) -> Batches: ...

    def ready(self) -> bool:
        """True when there is enough to train on."""

    def take_in(self) -> int:
        """Takes in new data, for a moment; returns how many items it read."""

    def restore(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Takes over the state of rank 0's trainer."""

    def share(self, planned: TrainingRound, rows: tuple[int, ...], place: int) -> Any:
        """An order of `feed` for the first step of a round, whose rows are shared so; this rank has that place."""


@dataclass(kw_only=True, eq=False)
class Follower:
    """Waits for an invitation, trains while its group lasts, waits again. A lost group is no error: rank 0 makes a new one."""

    run_name: str
    place: RankPlace
    config: RankSettings
    bus: Bus
    work: RankWork
    stays: bool = True  # after rank 0 ended or its table expired, a minute; else this rank ends too

    def __post_init__(self) -> None:
        self._name = f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}"
        self._broker = CircuitBreaker()
        self._meeting = ""  # the last one that it was in
        self._has_seen_table = False
        self._beaten: tuple[bool, float] = (False, 0.0)
        self._watch = WorkWatch()

    def run(self, stop: StopSign, on_turn: Callable[[], object] = lambda: None, watch: WorkWatch | None = None) -> None:
        """Trains until `stop` is set; `on_turn` is called every few seconds and after each step, `watch` marked within steps, too."""
        self._watch = watch or self._watch
        self.work.trainer.phases.on_switch = self._watch.mark
        try:
            while not stop.is_set():
                self._turned(on_turn)
                read = self.work.take_in()
                if self.work.ready():
                    self._beat(free=True)
                    tables = self._broker.attempt(self._tables)
                    if tables is not None and not tables and self._has_seen_table and not self.stays:
                        return
                    for table in tables or ():
                        self._has_seen_table = True
                        if invited(table, self._name, self._meeting):
                            self._join(table, stop, on_turn)
                if not read:
                    stop.wait(POLL_S)
        finally:
            self.work.feed.close()
            self._broker.attempt(lambda: self.bus.delete(keys.rank(self.run_name, self.place.rank)))

    def _tables(self) -> list[RankTable]:
        """The membership table, if there is one."""
        frame = self.bus.get(keys.ranks(self.run_name))
        return [decode(frame, RankTable)] if frame else []

    def _beat(self, *, free: bool) -> None:
        now = time.monotonic()
        if self._beaten[0] is free and now < self._beaten[1] + BEAT_LIFE_S / 4:
            return
        self._beaten = (free, now)
        frame = encode(RankBeat(self.place.rank, self._name, free, now_ms(), status_of(self.place.rank, self.work.trainer)))
        self._broker.attempt(lambda: self.bus.put(keys.rank(self.run_name, self.place.rank), frame, life_s=BEAT_LIFE_S))

    def _join(self, table: RankTable, stop: StopSign, on_turn: Callable[[], object]) -> None:
        """One epoch, from the invitation to its end."""
        self._meeting = table.meeting
        self._beat(free=False)
        names = [name for _, name in table.members]
        place, size = 1 + names.index(self._name), 1 + len(names)
        group: RankGroup | None = None
        try:
            listen_towards(table.host)
            store = Rendezvous(self.bus, self.run_name, table.meeting, JOIN_S)
            group = RankGroup(store, table.epoch, place, size, self.work.trainer.device, self.config.rank_timeout_s)
            log.info("rank_joined", rank=self.place.rank, epoch=table.epoch, ranks=size)
            self._watch.done("epoch", once=False)  # kernels are loaded or compiled, and others are waited for
            with self._watch.does("epoch"):
                self._serve(group, stop, on_turn)
        except RuntimeError as error:
            log.warning("group_lost", rank=self.place.rank, epoch=table.epoch, reason=str(error).partition("\n")[0][:200])
        self.work.trainer.leave()
        if group is not None:
            group.close()

    def _serve(self, group: RankGroup, stop: StopSign, on_turn: Callable[[], object]) -> None:
        command, trainer = group.receive(), self.work.trainer
        self.work.restore(group.take_state(command), command.step)
        trainer.join(sync_of(trainer.module, self.config, trainer.device))
        while not stop.is_set() and self._obey(group):
            self._turned(on_turn)
            if group.has_trained:
                self._watch.done("epoch")

    def _turned(self, on_turn: Callable[[], object]) -> None:
        self._watch.mark()
        on_turn()

    def _obey(self, group: RankGroup) -> bool:
        """Follows rank 0's next command; False for `leave`."""
        command = group.receive()
        if command.op == "train":
            self._train(group, command)
        self._beat(free=False)
        self.work.take_in()
        return command.op != "leave"

    def _train(self, group: RankGroup, command: Command) -> None:
        assert command.planned is not None
        self.work.trainer.sync.share(group.place, command.rows)
        order = self.work.share(command.planned, command.rows, group.place)
        train_together(group, self.work.trainer, self.work.feed, command.planned, order)
