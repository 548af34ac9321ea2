"""Intake beside training, in a thread: a device that trains waits for no broker, no disk and no rules of a game.

The loop alone reads and acknowledges the stream, appends to the segment log, adds to the window and counts in the ledger. Who trains reads
the numbers of games and samples, which only grow, and gathers from the window, which has a lock. Training may thus see a sample counted
an instant before it can be drawn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from azq import logs
from azq.errors import StoreError
from azq.learner.data.intake import BATCH, Intake
from azq.phases import CPU
from azq.process.breaker import CircuitBreaker
from azq.waiting import WAITS, meanwhile

IDLE_S = 0.1  # between two reads where the last one took all: games come one by one, and are cheaper to take in together
# The learner's place is renewed then; and a broker may die, lose its last commands and be back before a call that would say so.
AGREE_EVERY_S = 2.0
HANGS_AFTER_S = 5.0  # in one turn

log = logs.get(__name__)


@dataclass(eq=False)
class IntakeLoop:
    """Takes in games, in one thread at a time; waits for a lost broker and a full disk."""

    intake: Intake
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._broker = CircuitBreaker(clock=self.clock)
        self._disk = CircuitBreaker(StoreError, ("disk_refuses", "disk_takes"), clock=self.clock)
        self._error: BaseException | None = None
        self._thread = 0  # that turns beside training
        self._begun_s = self._agreed_s = self.clock()
        self._leftovers = True  # entries read and not acknowledged may wait
        self.agreed = False  # with the ledger, once at least; nothing is to be written before
        self.cores = 0.0  # of the CPU, that its thread uses

    def turn(self) -> int:
        """One read; returns how many games were seen. Raises errors that waiting does not resolve, such as `StateConflict`."""
        self._begun_s = now = self.clock()
        if now >= self._agreed_s + AGREE_EVERY_S:
            self._leftovers, self._agreed_s = True, now
        seen = self._broker.attempt(partial(self._disk.attempt, self._read))
        if seen is None:  # what was read and not acknowledged is asked for again
            self._leftovers = True
        return seen or 0

    def drain(self, longest_s: float, on_turn: Callable[[], object]) -> None:
        """Takes in all that the stream still holds."""
        end = self.clock() + longest_s
        if self.intake.uploader is not None:
            self.intake.uploader.hurry()
        while self.clock() < end and (self.turn() or self._leftovers or self.intake.unacked):
            if self._broker.active or self._disk.active or self.intake.unacked:
                threading.Event().wait(0.05)
            on_turn()

    def beside(self) -> AbstractContextManager[None]:
        """Turns in a thread for the length of the block."""
        return meanwhile("intake", self._run)

    def lives(self) -> bool:
        """Whether the thread makes progress or waits for a broker; raises the error that ended it."""
        if self._error is not None:
            raise self._error
        return self._in_time()

    @property
    def gets_on(self) -> bool:
        """The same without raising; True where no thread is running."""
        return self._error is None and (not self._thread or self._in_time())

    def _in_time(self) -> bool:
        return self.clock() < self._begun_s + HANGS_AFTER_S or WAITS.excuse(self._thread)

    def _run(self, ended: threading.Event) -> None:
        self.intake.phases.restart()
        self._thread = threading.get_ident()
        try:
            while not ended.is_set():
                if self.turn() < BATCH:
                    ended.wait(IDLE_S)
                self.cores = self.intake.phases.shares().get(CPU + "intake", 0.0)
        except BaseException as error:  # the learner's thread raises it
            self._error = error
        finally:
            self._thread = 0

    def _read(self) -> int:
        if self._leftovers:
            if self.intake.lease:  # here, for training may be busy with one thing for a minute
                self.intake.ledger.renew_learner(self.intake.lease)
            self.intake.agree_with_ledger()
            self.agreed = True
            claimed = self.intake.claim_leftovers()
            self._leftovers = False
            if claimed:
                log.info("leftovers_claimed", games=claimed)
        return self.intake.read()
