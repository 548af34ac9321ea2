"""One daemon a control plane: a key with a life, renewed in each tick, that a dead holder loses: at once where its death can be seen."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import redis

from azq.bus.connect import translate
from azq.errors import StateConflict
from azq.wire import keys

LIFE_S = 4.0  # at least; longer than a few ticks

# KEYS[1] the lock; ARGV[1] holder, ARGV[2] life in ms. Returns the holder after the call.
_HOLD = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""

# KEYS[1] the lock; ARGV[1] holder. Deletes it if it is still ours.
_LET_GO = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


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


def surely_dead(holder: str, space: str) -> bool:
    """Whether a holder's process is gone. Of another machine's or container's nothing is known."""
    _, pid, *rest = holder.split(":")
    if len(rest) < 2 or not space or rest[1] != space:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


class DaemonLock:
    """The right to act on a control plane."""

    def __init__(self, client: redis.Redis, holder: str | None = None, *, life_s: float = LIFE_S) -> None:
        self._client = client
        self._holder = holder or holder_name()
        self._life_s = life_s

    def hold(self) -> None:
        """Takes the lock or renews it; `StateConflict` names another holder."""
        with translate(self._client):
            holder = self._take()
            if holder != self._holder and surely_dead(holder, process_space()):
                self._client.eval(_LET_GO, 1, keys.DAEMON, holder)
                holder = self._take()
        if holder != self._holder:
            host, pid, *_ = holder.split(":")
            raise StateConflict(
                f"another daemon (pid {pid} on {host}) serves this control plane; stop it, or set another broker.control_url"
            )

    def _take(self) -> str:
        return bytes(self._client.eval(_HOLD, 1, keys.DAEMON, self._holder, str(int(self._life_s * 1000)))).decode()

    def wait(self, pause: Callable[[float], bool]) -> None:
        """Takes the lock, waiting as long as a dead holder may still have it; `pause(seconds)` says True to give up waiting."""
        deadline = time.monotonic() + self._life_s + 1.0
        while True:
            try:
                self.hold()
                return
            except StateConflict:
                if time.monotonic() > deadline or pause(0.1):
                    raise

    def let_go(self) -> None:
        """Gives the lock back, if it is still ours."""
        with translate(self._client):
            self._client.eval(_LET_GO, 1, keys.DAEMON, self._holder)
