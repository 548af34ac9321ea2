"""Pool children that die or hang: noticed by the main process through the board, their jobs given to others at once.

A child says about once a second that it lives, and which job it holds. One that is gone is owed its lease's end, which frees its games
before the lease runs out by itself; one that is silent is killed, also where it only waits, and the pool starts another in its place and
hands it the message that the first one had not yet taken.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from azq import logs
from azq.errors import BrokerError, LeaseLost, NotFound
from azq.ledger import Ledger
from azq.ledger.types import Lease
from azq.process.liveness import HANG_AFTER_S
from azq.process.proc import is_my_child
from azq.process.supervisor import hangs
from azq.waiting import AwakeClock
from workers.board import Board, Claim

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


class Signs(threading.Thread):
    """In a child: says that it lives; while it holds a job, only as long as the main thread goes on asking whether it should stop."""

    def __init__(self, board: Board, slot: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name="signs", daemon=True)
        self.board = board
        self.slot = slot
        self._clock = clock
        self._lock = threading.Lock()
        self.hold("")

    def hold(self, job_id: str, attempt: int = 0) -> None:
        """A job was claimed, or none is held any more ("")."""
        with self._lock:
            self._claim, self._asked_s = Claim(os.getpid(), job_id, attempt), self._clock()
            self.board.claim(self.slot, self._claim)

    def asked(self) -> None:
        """The main thread goes on."""
        self._asked_s = self._clock()

    def repeat(self) -> None:
        """One sign of life, where there is reason for it."""
        with self._lock:
            if not self._claim.job_id or self._clock() - self._asked_s < STUCK_AFTER_S:
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
    return {slot: before[slot] if slot in before and before[slot][0] == said else (said, now_s) for slot, said in now.items()}


def hung(last: Heard, is_child: Callable[[int], bool], now_s: float) -> set[Claim]:
    """Claims of children that are there and silent."""
    return {claim for (claim, _), heard_s in last.values() if hangs(heard_s, now_s, HANG_AFTER_S) and is_child(claim.pid)}


class Care(threading.Thread):
    """In the main process: ends what hangs, and the leases of what is dead. `ledger` is asked for at the first need."""

    def __init__(
        self,
        board: Board,
        ledger: Callable[[], Ledger],
        *,
        max_attempts: int,
        is_child: Callable[[int], bool] = is_my_child,
        kill: Callable[[int, int], None] = os.kill,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="care", daemon=True)
        self._board = board
        self._make_ledger = ledger
        self._ledger: Ledger | None = None
        self._max_attempts = max_attempts
        self._is_child = is_child
        self._kill = kill
        self._awake_s = AwakeClock(clock)
        self._heard: Heard = {}
        self._owed: set[Claim] = set()
        self._settled: set[Claim] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def end(self) -> None:
        self._over.set()

    def look(self) -> None:
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
            self._settle(claim)

    def _settle(self, claim: Claim) -> None:
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
            ledger.fail(lease, f"process {claim.pid}, which held it, died", max_attempts=self._max_attempts)
            log.warning("pool_child_died", pid=claim.pid, job=claim.job_id, attempt=claim.attempt)
