"""The right to learn a run: of its folder on this host, and of its place in the control plane on all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from azq.errors import BrokerError, NotFound, StateConflict, StoreError
from azq.files import locked
from azq.ledger import Ledger
from azq.ledger.holder import holder_name, wait_for_place
from azq.ledger.types import LearnerLease

LOCK_NAME = ".learner.lock"
PLACE_LIFE_S = 10.0  # how long nobody else may learn after a learner was last heard of


@contextmanager
def lock_folder(directory: Path) -> Iterator[None]:
    """Holds a run's folder for this process; raises `StateConflict` naming the process that has it."""
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(
                locked(directory / LOCK_NAME, lambda pid: f"another learner, process {pid}, trains in {directory}; stop it first")
            )
        except OSError as error:
            raise StoreError(f"the run's folder {directory} cannot be used: {error.strerror}; check it and its permissions") from None
        yield


@contextmanager
def held_place(ledger: Ledger, run: str, pause: Callable[[float], bool]) -> Iterator[LearnerLease]:
    """Holds the one learner's place of a run; waits while a dead learner may still have it. Raises `StateConflict` naming who has it."""
    holder = holder_name()
    lease = wait_for_place(lambda: ledger.take_learner(run, holder, PLACE_LIFE_S), PLACE_LIFE_S, pause)
    try:
        yield lease
    finally:
        with suppress(BrokerError, StateConflict, NotFound):
            ledger.end_learner(lease)


@contextmanager
def renewed(ledger: Ledger, lease: LearnerLease) -> Iterator[None]:
    """Keeps the learner's place while it opens, which takes as long as its log is; the loop renews it by itself."""
    opened = threading.Event()

    def renew() -> None:
        while not opened.wait(lease.life_s / 4):
            with suppress(BrokerError, StateConflict, NotFound):  # the loop's first commit tells who has it now
                ledger.renew_learner(lease)

    thread = threading.Thread(target=renew, name="learner's place", daemon=True)
    thread.start()
    try:
        yield
    finally:
        opened.set()
        thread.join()
