"""Who holds what one process alone may hold: how holders are named, when one is surely dead, how its place is taken."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from azq.errors import StateConflict

T = TypeVar("T")


def holder_name() -> str:
    """This process, told apart from an earlier one with the same pid."""
    return f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}:{process_space()}"


def process_space() -> str:
    """Where a process id means the same: this boot of this kernel and this pid namespace; empty where that cannot be told."""
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


def wait_for_place(take: Callable[[], T], life_s: float, pause: Callable[[float], bool]) -> T:
    """What `take` answers, tried for as long as a dead holder may still have the place; `pause(seconds)` says True to give up waiting.

    Raises the last `StateConflict` of `take`.
    """
    deadline = time.monotonic() + life_s + 1.0
    while True:
        try:
            return take()
        except StateConflict:
            if time.monotonic() > deadline or pause(0.1):
                raise
