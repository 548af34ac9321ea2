"""A slice's calls to the ledger: retried while the lease lasts, kept small, their last directive remembered.

A finish or journal whose answer was lost is sent again; had it been committed, the ledger answers the second one with `LeaseLost`
(the games are not held any more), the slice drops what it has, and the journal and the lease's end make it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from azq import logs
from azq.errors import BrokerUnavailable
from azq.ledger import Ledger
from azq.ledger.types import Directive, Effort, Lease
from azq.waiting import Backoff
from azq.wire.arrays import size_of
from azq.wire.messages import GameRecord, SampleEvent

RECORDS_PER_CALL = 256  # the server does nothing else while it runs one call
BYTES_PER_CALL = 2 * 1024 * 1024  # more at once takes both sides two to three times the work for each byte
TRIES_WHEN_STOPPING = 5  # about three seconds
BACKOFF = Backoff(0.1, 2.0)

T = TypeVar("T")
log = logs.get(__name__)


class HeldLease:
    """One lease's calls. All raise `LeaseLost` when it was taken over and `BrokerUnavailable` when it ran out unrenewed."""

    def __init__(
        self, ledger: Ledger, lease: Lease, *, should_stop: Callable[[], bool], clock: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._should_stop = should_stop
        self._clock = clock
        self._wait = wait
        self._renewed_s = clock()
        self._counted = Effort()
        self.done = Effort()  # since the lease began, as its holder knows it
        self.directive = Directive.GO_ON

    def adopt(self, count: int) -> list[GameRecord]:
        """Open games for so many slots, from the pool first; may be fewer."""
        games: list[GameRecord] = []
        while len(games) < count:
            count_now = min(RECORDS_PER_CALL, count - len(games))
            more = self._persist(partial(self._ledger.adopt, self._lease, count_now))
            games += more
            if len(more) < count_now:
                break
        return games

    def adopt_named(self, uids: Sequence[int]) -> list[GameRecord]:
        """Those of the games that lie in the pool."""
        return self._persist(partial(self._ledger.adopt_named, self._lease, uids))

    def journal(self, records: Iterable[GameRecord]) -> None:
        """Writes open games and renews the lease, even when there is nothing to write."""
        batches = list(calls(records))
        for batch in batches:
            self._renewing(partial(self._ledger.journal, self._lease, batch))
        if not batches:
            self._renewing(partial(self._ledger.renew, self._lease))
        self._count()

    def replace(self, events: Sequence[SampleEvent], count: int) -> list[GameRecord]:
        """Closes games, hands over their samples and adopts up to `count` others: where games ended, in one atomic step and round trip."""
        if not events:
            return self.adopt(count)
        at_once = min(RECORDS_PER_CALL, count)
        self.directive, games = self._persist(partial(self._ledger.replace_games, self._lease, events, at_once))
        self._renewed_s = self._clock()
        return games if len(games) < at_once else games + self.adopt(count - at_once)

    def abandon(self, uid: int, reason: str) -> None:
        """Closes a game that cannot go on, with the reason."""
        self._persist(partial(self._ledger.abandon, self._lease, uid, reason))

    def release(self, records: Iterable[GameRecord]) -> None:
        """Journals the last changes, gives every held game back to the pool and ends the job."""
        for batch in calls(records):
            self._renewing(partial(self._ledger.journal, self._lease, batch))
        self._count()
        self._persist(partial(self._ledger.release, self._lease, []))

    def complete(self, result: bytes) -> None:
        """Commits the job's result and ends it."""
        self._persist(partial(self._ledger.complete, self._lease, result))

    def _count(self) -> None:
        if self.done != self._counted:
            self._persist(partial(self._ledger.count_work, self._lease, self.done))
            self._counted = self.done

    def _renewing(self, call: Callable[[], Directive]) -> None:
        self.directive = self._persist(call)
        self._renewed_s = self._clock()

    def _persist(self, call: Callable[[], T]) -> T:
        """Tries until the broker answers, at most for the rest of the lease, and only for moments when the worker stops."""
        tries = 0
        while True:
            try:
                return call()
            except BrokerUnavailable as error:
                tries += 1
                over = self._clock() - self._renewed_s >= self._lease.lease_s
                if over or (self._should_stop() and tries >= TRIES_WHEN_STOPPING):
                    raise
                if tries == 1:
                    log.warning("broker_lost", job=self._lease.job.job_id, reason=str(error), retrying_for_s=self._lease.lease_s)
                self._wait(BACKOFF.pause_s(tries))


def calls(records: Iterable[GameRecord], most: int = RECORDS_PER_CALL, most_bytes: int = BYTES_PER_CALL) -> Iterator[list[GameRecord]]:
    """Lists of records, in order: at most so many in each, and so many bytes unless one alone has more."""
    batch: list[GameRecord] = []
    total = 0
    for record in records:
        size = size_of(record)
        if batch and (len(batch) == most or total + size > most_bytes):
            yield batch
            batch, total = [], 0
        batch.append(record)
        total += size
    if batch:
        yield batch
