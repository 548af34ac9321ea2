"""Compares the ledger with the disk: the run is paused until no game is on its way, both are read, and the run goes on."""

from __future__ import annotations

from typing import Any

import redis

from azq.drill.proof import Books, Discrepancy, compare
from azq.drill.system import RUN, System
from azq.errors import StateConflict
from azq.ledger import Ledger
from azq.ledger.types import JobState, RunState
from azq.wire import keys

STILL_S = 90.0  # the lease of a process that died has to end first, and a learner that starts has to take in what waits
PAUSED, GOES_ON = "a drill compares ledger and disk", "ledger and disk were compared"


class DiskAuditor:
    """Tells what is newly wrong since it looked last."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._before = Discrepancy()

    def audit(self) -> Discrepancy:
        """One look; the run goes on when this returns."""
        found = self._compare()
        new, self._before = found.since(self._before), found
        go_on(self._system)
        return new

    def audit_at_the_end(self) -> Discrepancy:
        """The last look, which reads all of the log again; the run stays paused."""
        self._system.evidence.begin()
        return self._compare().since(self._before)

    def _compare(self) -> Discrepancy:
        """Raises `StateConflict` where games were played with weights that had to be refused."""
        books, evidence = still(self._system), self._system.evidence
        evidence.read()
        if played := self._system.refused & evidence.versions():
            raise StateConflict(f"games were played with weights that had to be refused: version {min(played)}")
        return compare(books, evidence.disk())


def still(system: System) -> Books:
    """Pauses the run, waits until nobody holds a game and no sample waits, and reads the ledger."""
    _set_state(system, RunState.PAUSED, PAUSED, "a pause of the run")
    return system.until(lambda: system.query(_books), "the end of all leases and an empty sample stream", STILL_S)


def go_on(system: System) -> None:
    """Lets a paused run go on and waits until it does."""
    before = system.until(system.counts, "the ledger", STILL_S)
    _set_state(system, RunState.RUNNING, GOES_ON, "the end of the pause")
    system.until(lambda: system.counted(lambda now: now.inserted > before.inserted), "games after the pause", STILL_S)


def read_books(client: redis.Redis, run: str) -> Books:
    """The ledger's account of all games of a run; of one moment only where nobody holds a game meanwhile."""
    uids: Any = client.hkeys(keys.open_games(run))
    reasons: Any = client.hgetall(keys.abandoned(run))
    abandoned = {int(uid): bytes(reason).decode() for uid, reason in reasons.items()}
    return Books(Ledger(client).counts(run).opened, frozenset(map(int, uids)), abandoned)


def _set_state(system: System, state: RunState, reason: str, what: str) -> None:
    system.until(lambda: system.query(lambda client: Ledger(client).set_run_state(RUN, state, reason)), what, STILL_S)


def _books(client: redis.Redis) -> Books | None:
    """The ledger's account; None while a game is on its way, or where one was while it was read."""
    ledger = Ledger(client)
    look = ledger.look_at(RUN)
    if look.counts.in_transit or any(view.state is JobState.LEASED for view in look.jobs):
        return None
    books = read_books(client, RUN)
    return books if ledger.counts(RUN) == look.counts else None
