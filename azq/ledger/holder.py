"""Who holds what one process alone may hold: how holders are named, when one is surely dead, how its place is taken and kept."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from azq.errors import BrokerError, NotFound, StateConflict, StoreError
from azq.files import locked
from azq.waiting import meanwhile

if TYPE_CHECKING:
    from azq.ledger import Ledger
    from azq.ledger.types import LearnerLease

T = TypeVar("T")

LOCK_NAME = ".learner.lock"
PLACE_LIFE_S = 10.0  # after its last sign of life a learner's place goes to another


def holder_name() -> str:
    """This process's name, unlike that of an earlier one with the same pid."""
    return f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}:{process_space()}"


@cache
def process_space() -> str:
    """Where a process id means the same: this boot of this kernel and this pid namespace; empty where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def spoken(holder: str) -> str:
    """A holder in words."""
    host, pid, *_ = f"{holder}:?".split(":")
    return f"pid {pid} on {host or '?'}"


def surely_dead(holder: str, space: str) -> bool:
    """Whether a holder's process is gone. Of another machine's or container's nothing is known."""
    _, pid, *rest = f"{holder}::".split(":")
    if not space or rest[1:2] != [space]:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def take_place(take: Callable[[str], str], mine: str) -> str:
    """Who holds the place after an attempt to take it; a holder that is surely dead loses it at once.

    `take(dead)` takes it where it is free, ours or held by `dead`, and answers who holds it then.
    """
    holder = take("")
    return take(holder) if holder != mine and surely_dead(holder, process_space()) else holder


def wait_for_place(take: Callable[[], T], life_s: float, pause: Callable[[float], bool], clock: Callable[[], float] = time.monotonic) -> T:
    """What `take` answers, tried for as long as a dead holder may still have the place; `pause(seconds)` says True to give up waiting.

    Raises the last `StateConflict` of `take`.
    """
    deadline = clock() + life_s + 1.0
    while True:
        try:
            return take()
        except StateConflict:
            if clock() > deadline or pause(0.1):
                raise


@contextmanager
def lock_folder(directory: Path) -> Iterator[None]:
    """Holds a run's folder for this process; raises `StateConflict` naming the process that has it."""
    lock = locked(directory / LOCK_NAME, lambda pid: f"another learner, process {pid}, trains in {directory}; stop it first")
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock)
        except OSError as error:
            raise StoreError(f"the run's folder {directory} cannot be used: {error.strerror}; check it and its permissions") from None
        yield


@contextmanager
def held_place(
    ledger: Ledger, run: str, pause: Callable[[float], bool], holder: str = "", clock: Callable[[], float] = time.monotonic
) -> Iterator[LearnerLease]:
    """Holds a run's place of the learner once no dead one may have it. Raises `StateConflict` naming who has it."""
    holder = holder or holder_name()
    lease = wait_for_place(lambda: ledger.take_learner(run, holder, PLACE_LIFE_S), PLACE_LIFE_S, pause, clock)
    try:
        yield lease
    finally:
        with suppress(BrokerError, StateConflict, NotFound):
            ledger.end_learner(lease)


@contextmanager
def renewed(ledger: Ledger, lease: LearnerLease) -> Iterator[None]:
    """Keeps the learner's place while it opens, which takes as long as its log is; the loop renews it by itself."""

    def renew(opened: threading.Event) -> None:
        while not opened.wait(lease.life_s / 4):
            with suppress(BrokerError, StateConflict, NotFound):  # the loop's first commit tells who has it now
                ledger.renew_learner(lease)

    with meanwhile("learner's place", renew):
        yield
