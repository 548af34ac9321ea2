"""The product's bus and ledger on an empty database of a server in memory: one a process, from the first bus to the end of it."""

from __future__ import annotations

import atexit
import os
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import redis

from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import FIELD, RedisBus
from azq.ledger import Ledger
from azq.wire import keys
from azq.wire.connect import connect, translate

DATABASES = 4096  # of buses that live at once

_numbers = count(1)
_free: list[redis.Redis] = []  # clients of databases whose buses are gone


class _Server(EmbeddedServer):
    def _write_settings(self, socket: Path, *, has_users: bool) -> None:
        super()._write_settings(socket, has_users=has_users)
        with self._settings_file.open("a") as file:
            file.write(f"databases {DATABASES}\n")


@cache
def _url() -> str:
    assert threading.current_thread() is threading.main_thread(), "the server ends with the thread that starts it"
    folder, owner = tempfile.TemporaryDirectory(prefix="azq-test-"), os.getpid()
    server = _Server("data", Path(folder.name))
    server.start()

    @atexit.register
    def end() -> None:
        if os.getpid() == owner:
            server.stop()
            folder.cleanup()

    return server.url


def _empty_database() -> redis.Redis:
    client = _free.pop() if _free else connect(f"{_url()}?db={next(_numbers)}", blocking=True)
    client.flushdb()
    return client


class MemoryBus(RedisBus):
    """On its own database, or on that of a client. Streams are cut to their exact length.

    With a `clock` (seconds) the ids of entries and the lives of values, as `get` and `get_each` read them, follow it.

    With `down` set every call raises `BrokerUnavailable`, as an unreachable broker does, one that waits too; what it holds stays.
    """

    def __init__(self, client: redis.Redis | None = None, *, clock: Callable[[], float] | None = None) -> None:
        self.client = client or _empty_database()
        super().__init__(self.client)
        self._clock = clock
        self._until: dict[str, float] = {}
        if client is None:
            weakref.finalize(self, _take_back, self.client)

    @property
    def down(self) -> bool:
        """Whether it is."""
        return "get_connection" in vars(self.client.connection_pool)

    @down.setter
    def down(self, down: bool) -> None:
        pool = self.client.connection_pool
        vars(pool).pop("get_connection", None)
        if down:
            vars(pool)["get_connection"] = _refuse
            for connection in [*pool._in_use_connections]:
                with suppress(OSError, AttributeError):  # closed meanwhile, or not open yet
                    connection._sock.shutdown(socket.SHUT_RDWR)  # as a server that goes away: who reads hears the end

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str:
        at = "*" if self._clock is None else f"{int(self._clock() * 1000)}-*"
        with translate(self.client):
            entry_id: Any = self.client.xadd(stream, {FIELD: frame}, id=at, maxlen=max_length, approximate=False)
        return str(entry_id.decode())

    def publish_each(self, frames: Sequence[tuple[str, bytes]], *, max_length: int | None = None) -> None:
        for stream, frame in frames:
            self.publish(stream, frame, max_length=max_length)

    def put(self, key: str, value: bytes, *, life_s: float | None = None) -> None:
        if self._clock is None:
            super().put(key, value, life_s=life_s)
        else:
            super().put(key, value)
            self._until[key] = self._clock() + (float("inf") if life_s is None else life_s)

    def get_each(self, names: Sequence[str]) -> list[bytes | None]:
        over = [name for name, until in self._until.items() if self._clock and self._clock() >= until]
        self.delete(*over)
        return super().get_each(names)


def _refuse(*_: object, **__: object) -> None:
    raise redis.ConnectionError("it was taken down")


def _take_back(client: redis.Redis) -> None:
    vars(client.connection_pool).pop("get_connection", None)
    _free.append(client)


class MemoryLedger(Ledger):
    """The ledger on a bus's database; `clock_ms` in place of the server's clock."""

    def __init__(self, bus: MemoryBus, *, clock_ms: Callable[[], int] | None = None) -> None:
        super().__init__(bus.client, clock_ms=clock_ms)
        self.bus = bus  # whose database is not another's while this lives

    def abandoned(self, run: str) -> dict[int, str]:
        """Why each game of a run was abandoned that was."""
        found: Any = self.client.hgetall(keys.abandoned(run))
        return {int(uid): reason.decode() for uid, reason in found.items()}
