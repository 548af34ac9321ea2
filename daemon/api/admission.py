"""How many runs and jobs requests may make: bounds on what every tick has to look through."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from azq.config import DaemonConfig
from azq.errors import TooManyRequests
from azq.ledger.types import LedgerLoad


class Loaded(Protocol):
    """A ledger that says how much there is to do."""

    def load(self) -> LedgerLoad: ...


@dataclass(frozen=True, slots=True)
class Quota:
    """One change at a time is let in after a look at the ledger.

    A lock of this process is enough, and no script has to read the keys of all runs: only the one daemon that holds the control plane's
    lock answers requests. Whoever writes to the control plane himself, as `azq up` does, holds its password and is not bounded.
    """

    ledger: Loaded
    config: DaemonConfig
    turn: threading.Lock

    @contextmanager
    def run(self) -> Iterator[None]:
        """While entered one more run may start. Raises `TooManyRequests` where too many are running."""
        with self.turn:
            running, most = self.ledger.load().running, self.config.max_runs
            if running >= most:
                raise TooManyRequests(f"{running} runs are running, as many as daemon.max_runs allows; pause or finish one, or raise it")
            yield

    @contextmanager
    def job(self) -> Iterator[None]:
        """While entered one more job may be enqueued. Raises `TooManyRequests` where too many have not ended."""
        with self.turn:
            jobs, most = self.ledger.load().jobs, self.config.max_queued_jobs
            if jobs >= most:
                raise TooManyRequests(f"{jobs} jobs wait or run, as many as daemon.max_queued_jobs allows; revoke some, or raise it")
            yield
