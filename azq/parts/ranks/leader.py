"""Rank 0: membership, step commands, and recovery from lost ranks."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from msgspec.structs import replace as changed

from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import RankSettings
from azq.errors import WireError
from azq.learner.rounds import AnyStepper, Ranks, RanksFigures, RoundTiming, TrainingRound
from azq.learner.step.stepper import Stepper
from azq.parts.ranks.group import START_S, Command, RankGroup, Rendezvous, listen_towards
from azq.parts.ranks.reducing import sync_of, train_together
from azq.parts.ranks.rules import FORGIVEN_AFTER_S, LOOPBACK, RankHealth, RankPlace, next_table, shares, smoothed
from azq.process.breaker import CircuitBreaker
from azq.process.liveness import STILL_S, patient
from azq.process.proc import resident_bytes
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import RankBeat, RankStatus, RankTable

POLL_S = 1.0  # between two polls of the ranks
SETTLE_S = 0.5  # after a loss, until the others have noticed it too
JOIN_S = 5.0  # for all members to meet; less than a supervisor waits for a sign of life
TABLE_LIFE_S = 60.0

log = logs.get(__name__)


@dataclass(eq=False)
class Leader(Ranks[AnyStepper]):
    """This process and the ranks it invites; it trains alone while there is no other, and after a loss until others are back."""

    run: str
    bus: Bus
    config: RankSettings
    place: RankPlace
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        super().__post_init__()
        self._broker = CircuitBreaker(clock=self.clock)
        self._table: RankTable | None = None  # None: not read yet, so that epochs grow over restarts
        self._group: RankGroup | None = None
        self._broken = False
        self._due_s = 0.0
        self._failures = 0
        self._speeds: tuple[float, ...] = ()  # samples a second of each member
        self._last: tuple[float, tuple[RoundTiming, ...]] = (0.0, ())  # seconds of a round, and each rank's own
        self._own_status = status_of(0, self.trainer)
        self._beats: dict[int, RankBeat] = {}  # by rank, of those that live
        self._health = {rank: RankHealth() for rank in range(1, self.place.ranks)}
        self._far: frozenset[str] = frozenset()  # hosts of ranks that cannot reach this one

    @property
    def size(self) -> int:
        """Members of the group, this process among them."""
        return self._group.size if self._group is not None else 1

    def poll(self) -> None:
        now = self.clock()
        if now < self._due_s:
            return
        self._due_s = now + POLL_S
        self._own_status = status_of(0, self.trainer)
        beats = self._broker.attempt(self._read_beats)
        if beats is None or self._table is None:
            return
        self._beats = {beat.rank: beat for beat in beats}
        self._log_unreachable()
        for rank, health in self._health.items():
            self._remember(rank, health.after(self._beats.get(rank), now))
        heard = [beat for beat in beats if beat.rank not in self._health or not self._health[beat.rank].left_out]
        table = next_table(self._table, heard, broken=self._broken)
        if table is not self._table:
            self._begin(table)
        elif self._group is not None:
            self._holds(partial(self._group.send, Command("idle")))
        self._broker.attempt(self._put_table)

    def train(self, planned: TrainingRound) -> int:
        """Takes the steps with all members; where one is lost, restores the state before them and returns 0."""
        if self._group is None:
            return super().train(planned)
        before = self.trainer.snapshot()
        if not self._group.has_trained:
            planned = replace(planned, steps=1)
        # A step and the wait for another's; a watchdog of this process waits for less than that where steps are long.
        bears_s = self._group.longest_s + self._group.patience_s
        with patient(bears_s) if bears_s > STILL_S else contextlib.nullcontext():
            if not self._holds(partial(self._together, planned)):
                self.trainer.restore(*before)
        return self.trainer.step - planned.step

    def _together(self, planned: TrainingRound) -> None:
        group = self._group
        assert group is not None
        rows = shares(self._speeds or [0.0] * group.size, planned.rows)
        start = time.perf_counter()
        is_timed = group.has_trained  # the first step tells how long kernels take to load
        group.send(Command("train", planned=planned, rows=rows))
        self.trainer.sync.share(0, rows)
        timings = train_together(group, self.trainer, self.feed, planned, self.feed.order(planned.step, rows[0], planned.size))
        if is_timed:
            self._last = (time.perf_counter() - start, tuple(timings))
            self._speeds = smoothed(self._speeds, [timing.per_s for timing in timings])

    def figures(self) -> RanksFigures:
        wall_s, timings = self._last
        by_rank = tuple(self._statuses())
        if self._group is None or not timings:
            return replace(super().figures(), ranks=self.place.ranks, failures=self._failures, by_rank=by_rank)
        steps = max(1, timings[0].steps)
        own_s = sum(timing.own_s for timing in timings) / len(timings)
        done = sum(timing.rows for timing in timings) * steps
        return RanksFigures(
            ranks=self.place.ranks,
            healthy=self._group.size,
            failures=self._failures,
            batch_s=wall_s / steps,
            sync_s=max(0.0, wall_s - own_s) / steps,
            efficiency=done / wall_s / sum(timing.per_s for timing in timings),
            shares=tuple(timing.rows for timing in timings),
            by_rank=by_rank,
        )

    def _statuses(self) -> Iterator[RankStatus]:
        """The status of this process and the last one of each other rank."""
        members = [rank for rank, _ in self._table.members] if self._table is not None and self._group is not None else []
        timings = dict(zip([0, *members], self._last[1] or [self._timing], strict=False))
        yield _timed(changed(self._own_status, seen_ms=now_ms()), "trains", timings.get(0))
        for rank, health in self._health.items():
            beat = self._beats.get(rank)
            state = "left_out" if health.left_out else "trains" if rank in members else "waits" if beat else "away"
            status = changed(beat.status, seen_ms=beat.sent_ms) if beat else RankStatus(rank)
            yield _timed(changed(status, errors=health.errors, reason=health.reason), state, timings.get(rank))

    def close(self) -> None:
        self._send_leave()
        self._release()
        super().close()

    def _read_beats(self) -> list[RankBeat]:
        if self._table is None:
            frame = self.bus.get(keys.ranks(self.run))
            self._table = changed(decode(frame, RankTable), members=()) if frame else RankTable(host=self.place.host)
        frames = self.bus.get_each([keys.rank(self.run, number) for number in range(1, self.place.ranks)])
        return [beat for frame in frames if frame and (beat := _beat(frame))]

    def _remember(self, rank: int, health: RankHealth) -> None:
        was_out = self._health[rank].left_out
        self._health[rank] = health
        if health.left_out and not was_out:
            log.warning("rank_left_out", rank=rank, errors=health.errors, reason=health.reason, for_s=FORGIVEN_AFTER_S)

    def _log_unreachable(self) -> None:
        """Logs each host once whose ranks cannot reach this one's loopback address."""
        if self.place.host != LOOPBACK:
            return
        hosts = frozenset(beat.status.host for beat in self._beats.values()) - {self._own_status.host, *self._far}
        for host in hosts:
            log.warning("rank_out_of_reach", host=host, remedy="start this rank 0 with MASTER_ADDR, the address that others know it by")
        self._far |= hosts

    def _put_table(self) -> None:
        assert self._table is not None
        self.bus.put(keys.ranks(self.run), encode(self._table), life_s=TABLE_LIFE_S)

    def _begin(self, table: RankTable) -> None:
        """Starts an epoch: the old members leave, the new ones rendezvous and receive the state."""
        self._send_leave()
        self._release()
        self._broken = False
        self._table = changed(table, host=self.place.host)
        if not table.members:
            log.info("ranks_joined", epoch=table.epoch, ranks=1, of=self.place.ranks)
            return
        with patient(START_S):
            self._holds(partial(self._meet, self._table))

    def _meet(self, table: RankTable) -> None:
        size, name = 1 + len(table.members), f"bus-{secrets.token_hex(16)}"
        listen_towards(self.place.host)
        store = Rendezvous(self.bus, self.run, name, JOIN_S)
        self._table = changed(table, meeting=name)
        self._broker.attempt(self._put_table)
        self._group = RankGroup(store, table.epoch, 0, size, self.trainer.device, self.config.rank_timeout_s)
        self._group.send_state(self.trainer.tensors(), self.trainer.step)
        self.trainer.join(sync_of(self.trainer.module, self.config, self.trainer.device))
        log.info("ranks_joined", epoch=table.epoch, ranks=size, of=self.place.ranks)

    def _holds(self, call: Callable[[], None]) -> bool:
        """Whether a call succeeded; where it loses a member, this rank goes on alone."""
        lost = ""
        try:
            call()
        except RuntimeError as error:
            lost = str(error).partition("\n")[0][:200] or type(error).__name__
        if lost:  # outside of the handler: an error holds what holds connections
            self._failures += 1
            log.warning("rank_lost", epoch=self._table.epoch if self._table else 0, reason=lost)
            self._part()
        return not lost

    def _part(self) -> None:
        """Goes on alone until the others register as free."""
        self._release()
        self._broken = True
        if self._table is not None:
            self._table = changed(self._table, meeting="")  # that meeting place is over
        self._due_s = self.clock() + SETTLE_S

    def _send_leave(self) -> None:
        if self._group is not None:
            with contextlib.suppress(RuntimeError), patient(START_S):
                self._group.send(Command("leave"))

    def _release(self) -> None:
        group, self._group = self._group, None
        self._last, self._speeds = (0.0, ()), ()
        self.trainer.leave()  # what it trained with holds the group's connections
        if group is not None:
            group.close()


def status_of(rank: int, trainer: Stepper) -> RankStatus:
    """This process's own status as a rank."""
    device = trainer.device
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else resident_bytes()
    return RankStatus(
        rank=rank,
        host=socket.gethostname(),
        device=str(device),
        memory_bytes=memory,
        state_bytes=trainer.state_bytes,
        micro_batch=trainer.micro_batch,
        errors=trainer.errors,
        reason="out of memory" if trainer.errors else "",
    )


def _timed(status: RankStatus, state: str, timing: RoundTiming | None) -> RankStatus:
    if timing is None or not timing.steps:
        return changed(status, state=state)
    return changed(status, state=state, rows=timing.rows, samples_per_s=timing.per_s, batch_s=timing.batch_s, sync_s=timing.sync_s)


def _beat(frame: bytes) -> RankBeat | None:
    try:
        return decode(frame, RankBeat)
    except WireError:
        return None
