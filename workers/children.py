"""The children of a worker's pool: the shared memory in which each says what it does, and who looks after those that die or hang."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from azq import logs, metrics, phases
from azq.errors import BrokerError, LeaseLost, NotFound
from azq.ledger import Ledger
from azq.ledger.types import Lease
from azq.process.liveness import HANG_AFTER_S, hangs
from azq.process.proc import is_my_child
from azq.waiting import AwakeClock

_STOP = struct.Struct("<Q")
_RATES = (*metrics.OF_CHILDREN, *(prefix + name for prefix in (phases.WALL, phases.CPU) for name in phases.SELFPLAY))
_SLOT = struct.Struct(f"<d?Q64s{len(_RATES)}d")
_CLAIM = struct.Struct("<dQQ96s")
_CLAIM_AT = -(-_SLOT.size // 8) * 8  # behind the figures
_LEFT_AT = _CLAIM_AT + -(-_CLAIM.size // 8) * 8  # the last one that another child wrote over
_STRIDE = _LEFT_AT + -(-_CLAIM.size // 8) * 8
FRESH_S = 10.0


@dataclass(frozen=True, slots=True)
class ChildFigures:
    """What a child does: `busy` says that it holds a job, `rates` are figures and phases by their names in heartbeats, zeros left out."""

    busy: bool = False
    run: str = ""
    weight_version: int = 0
    rates: Mapping[str, float] = field(default_factory=dict)


class Claim(NamedTuple):
    """A job that a child holds; "" where it waits for one."""

    pid: int
    job_id: str
    attempt: int


class Board:
    """A stop flag and, per pool child, a slot with its figures and the job it holds."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._memory = mmap.mmap(-1, _STRIDE * (slots + 1))

    def stop(self) -> None:
        """Tells every child to give its work back."""
        _STOP.pack_into(self._memory, 0, 1)

    def stopping(self) -> bool:
        return bool(_STOP.unpack_from(self._memory, 0)[0])

    def write(self, slot: int, figures: ChildFigures) -> None:
        """A child's figures as of now; more children than slots share the last one."""
        facts = (figures.busy, figures.weight_version, figures.run.encode()[:64])
        rates = (figures.rates.get(name, 0.0) for name in _RATES)
        _SLOT.pack_into(self._memory, self._place(slot), time.monotonic(), *facts, *rates)

    def read(self) -> list[ChildFigures]:
        """Figures of the children that wrote lately."""
        now = time.monotonic()
        figures = []
        for slot in range(self.slots):
            written_s, busy, version, run, *values = _SLOT.unpack_from(self._memory, self._place(slot))
            if written_s and now - written_s < FRESH_S:
                rates = {name: value for name, value in zip(_RATES, values, strict=True) if value}
                figures.append(ChildFigures(busy, _text(run), version, rates))
        return figures

    def busy(self) -> bool:
        return any(figures.busy for figures in self.read())

    def claim(self, slot: int, claim: Claim) -> None:
        """What a child does; said again, it is a sign of life.

        A job that another child held here stays in sight: that child is dead, and may have lived for less time than passes between looks.
        """
        pid, job_id, attempt = claim
        cell = self._place(slot) + _CLAIM_AT
        before = _CLAIM.unpack_from(self._memory, cell)
        if before[1] != pid and before[3].strip(b"\0"):
            _CLAIM.pack_into(self._memory, self._place(slot) + _LEFT_AT, *before)
        _CLAIM.pack_into(self._memory, cell, time.monotonic(), pid, attempt, job_id.encode())

    def claims(self) -> dict[int, tuple[Claim, float]]:
        """What each child does, and when it last said so (monotonic clock), by slot."""
        return {slot: claim for slot in range(self.slots) if (claim := self._claim_at(slot, _CLAIM_AT))[0].pid}

    def left(self) -> set[Claim]:
        """The job, by slot, that its last child held when another one took its place."""
        return {claim for slot in range(self.slots) if (claim := self._claim_at(slot, _LEFT_AT)[0]).pid}

    def _claim_at(self, slot: int, offset: int) -> tuple[Claim, float]:
        written_s, pid, attempt, job_id = _CLAIM.unpack_from(self._memory, self._place(slot) + offset)
        return Claim(pid, _text(job_id), attempt), written_s

    def _place(self, slot: int) -> int:
        return _STRIDE * (1 + min(slot, self.slots - 1))


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode(errors="replace")


def merge(children: Sequence[ChildFigures]) -> dict[str, float]:
    """The children's figures as their worker's, as each asks for; {} where no child has worked lately."""
    if not children:
        return {}
    weights = [child.rates.get(metrics.EVALUATIONS_PER_S, 0.0) for child in children]
    merged = {name: combine([child.rates.get(name, 0.0) for child in children], weights) for name, combine in metrics.OF_CHILDREN.items()}
    return merged | phases.merged([spent for child in children if (spent := phases.of_heartbeat(child.rates))])


def versions(children: Sequence[ChildFigures]) -> dict[str, int]:
    """The newest weight version each run's games were searched with."""
    newest: dict[str, int] = {}
    for child in children:
        if child.run:
            newest[child.run] = max(newest.get(child.run, 0), child.weight_version)
    return newest


LOOK_S = 0.25
SIGN_S = 1.0
STUCK_AFTER_S = 60.0  # a main thread that asks for nothing so long counts as silent; its lease is long over

Said = tuple[Claim, float]  # what a child does, and when it said so
Claims = Mapping[int, Said]  # by slot
Heard = Mapping[int, tuple[Said, float]]  # and when its main process first read that

log = logs.get(__name__)


def owner_of(pid: int) -> str:
    """The name of this host's process in the ledger."""
    return f"{socket.gethostname()}:{pid}"


class ChildHeartbeat(threading.Thread):
    """In a child: says that it lives; while it holds a job, only as long as the main thread goes on asking whether it should stop."""

    def __init__(self, board: Board, slot: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name="child heartbeat", daemon=True)
        self.board = board
        self.slot = slot
        self._clock = clock
        self._lock = threading.Lock()
        self.hold("")

    def hold(self, job_id: str, attempt: int = 0) -> None:
        """A job was claimed, or none is held any more ("")."""
        with self._lock:
            self._claim, self._progressed_s = Claim(os.getpid(), job_id, attempt), self._clock()
            self.board.claim(self.slot, self._claim)

    def progressed(self) -> None:
        """The main thread goes on."""
        self._progressed_s = self._clock()

    def repeat(self) -> None:
        """One sign of life, where there is reason for it."""
        with self._lock:
            if not self._claim.job_id or self._clock() - self._progressed_s < STUCK_AFTER_S:
                self.board.claim(self.slot, self._claim)

    def run(self) -> None:
        pause = threading.Event()
        while not pause.wait(SIGN_S):
            self.repeat()


def gone(claims: Iterable[Claim], is_child: Callable[[int], bool]) -> set[Claim]:
    """Claims of children that are no more; a claim that ended well is among them and finds its lease ended."""
    return {claim for claim in claims if claim.job_id and not is_child(claim.pid)}


def heard(before: Heard, now: Claims, now_s: float) -> Heard:
    """When each child was heard of last, by the clock of who reads."""
    return {slot: before[slot] if slot in before and before[slot][0] == claim else (claim, now_s) for slot, claim in now.items()}


def hung(last: Heard, is_child: Callable[[int], bool], now_s: float) -> set[Claim]:
    """Claims of children that are there and silent."""
    return {claim for (claim, _), heard_s in last.values() if hangs(heard_s, now_s, HANG_AFTER_S) and is_child(claim.pid)}


class PoolWatchdog(threading.Thread):
    """In the main process: ends what hangs, and the leases of what is dead. `ledger` is asked for at the first need."""

    def __init__(
        self,
        board: Board,
        ledger: Callable[[], Ledger],
        *,
        is_child: Callable[[int], bool] = is_my_child,
        kill: Callable[[int, int], None] = os.kill,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="pool watchdog", daemon=True)
        self._board = board
        self._make_ledger = ledger
        self._ledger: Ledger | None = None
        self._is_child = is_child
        self._kill = kill
        self._awake_s = AwakeClock(clock)
        self._heard: Heard = {}
        self._owed: set[Claim] = set()
        self._settled: set[Claim] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.check()

    def end(self) -> None:
        self._over.set()

    def check(self) -> None:
        before, now_s = self._heard, self._awake_s()
        self._heard = heard(before, self._board.claims(), now_s)
        for claim in hung(self._heard, self._is_child, now_s):
            log.error("pool_child_hung", pid=claim.pid, job=claim.job_id, silent_s=HANG_AFTER_S)
            with contextlib.suppress(ProcessLookupError):
                self._kill(claim.pid, signal.SIGKILL)
        seen = {claim for (claim, _), _ in (*before.values(), *self._heard.values())} | self._board.left()
        self._settled &= seen
        self._owed |= gone(seen, self._is_child) - self._settled
        for claim in sorted(self._owed):
            self._end_lease(claim)

    def _end_lease(self, claim: Claim) -> None:
        """Ends a lease; a broker that is away is asked again at the next look."""
        try:
            self._ledger = self._ledger or self._make_ledger()
            self._release(self._ledger, claim)
        except BrokerError:
            return
        self._owed.discard(claim)
        self._settled.add(claim)

    def _release(self, ledger: Ledger, claim: Claim) -> None:
        with contextlib.suppress(LeaseLost, NotFound):  # it ended well, or somebody was faster
            lease = Lease(ledger.job(claim.job_id).job, claim.attempt, owner_of(claim.pid), 0.0)
            ledger.fail(lease, f"process {claim.pid}, which held it, died")
            log.warning("pool_child_died", pid=claim.pid, job=claim.job_id, attempt=claim.attempt)
