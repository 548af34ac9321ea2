"""One daemon a control plane: a key with a life, renewed in each tick, that a dead holder loses: at once where its death can be seen."""

from __future__ import annotations

from collections.abc import Callable

import redis

from azq.errors import StateConflict
from azq.ledger.holder import holder_name, spoken, take_place, wait_for_place
from azq.wire import keys
from azq.wire.connect import translate

LIFE_S = 4.0  # at least; longer than a few ticks

# KEYS[1] the lock; ARGV[1] holder, ARGV[2] life in ms, ARGV[3] a holder that is dead. Returns the holder after the call.
_HOLD = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and holder ~= ARGV[3] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""

# KEYS[1] the lock; ARGV[1] holder. Deletes it if it is still ours.
_LET_GO = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class DaemonLock:
    """The right to act on a control plane."""

    def __init__(self, client: redis.Redis, holder: str | None = None, *, life_s: float = LIFE_S) -> None:
        self._client = client
        self._holder = holder or holder_name()
        self._life_s = life_s

    def hold(self) -> None:
        """Takes the lock or renews it; `StateConflict` names another holder."""
        with translate(self._client):
            holder = take_place(self._take, self._holder)
        if holder != self._holder:
            raise StateConflict(f"another daemon ({spoken(holder)}) serves this control plane; stop it, or set another broker.control_url")

    def _take(self, dead: str) -> str:
        return bytes(self._client.eval(_HOLD, 1, keys.DAEMON, self._holder, str(int(self._life_s * 1000)), dead)).decode()

    def wait(self, pause: Callable[[float], bool]) -> None:
        """Takes the lock, waiting as long as a dead holder may still have it; `pause(seconds)` says True to give up waiting."""
        wait_for_place(self.hold, self._life_s, pause)

    def let_go(self) -> None:
        """Gives the lock back, if it is still ours."""
        with translate(self._client):
            self._client.eval(_LET_GO, 1, keys.DAEMON, self._holder)
