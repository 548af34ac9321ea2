"""A bus on a Redis or Valkey server, with the command set of Redis 6.2, and the first connection to one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import redis
from redis.exceptions import ResponseError

from azq import logs
from azq.bus.base import DEAD_LENGTH, Bus, Entry, by_age, dead_frame
from azq.clock import now_ms
from azq.config import BrokerConfig
from azq.errors import BrokerUnavailable, ConfigError
from azq.process.liveness import more_time, notify
from azq.waiting import Backoff
from azq.wire import keys
from azq.wire.connect import connect, socket_timeout_s, translate

BACKOFF = Backoff(0.2, 5.0)  # of a start that waits for its broker
FIELD = b"f"  # the one field of every stream entry
log = logs.get(__name__)

T = TypeVar("T")
_SCAN_COUNT = 1000
_GLOB = str.maketrans({character: f"\\{character}" for character in "*?[]^\\"})


class RedisBus(Bus):
    """One broker instance. Safe to share between threads and to use after a fork: every call takes a connection of its own.

    A call that was cut off by a lost connection may have been done all the same: an appended frame can appear twice when the caller
    appends it again, and entries that were read stay pending for this consumer until they are claimed.
    """

    def __init__(self, client: redis.Redis | str) -> None:
        self._client = connect(client, blocking=True) if isinstance(client, str) else client
        # Half of the socket's patience: the server's "nothing came" must arrive before the socket gives up.
        self._longest_wait_s = max(0.05, socket_timeout_s(self._client) / 2)

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str:
        with translate(self._client):
            entry_id: Any = self._client.xadd(stream, {FIELD: frame}, maxlen=max_length, approximate=True)
        return bytes(entry_id).decode()

    def publish_each(self, frames: Sequence[tuple[str, bytes]], *, max_length: int | None = None) -> None:
        with translate(self._client), self._client.pipeline(transaction=False) as pipe:
            for stream, frame in frames:
                pipe.xadd(stream, {FIELD: frame}, maxlen=max_length, approximate=True)
            pipe.execute()

    def read(self, streams: Sequence[str], group: str, consumer: str, *, count: int, block_ms: int) -> list[Entry]:
        wanted: Any = dict.fromkeys(streams, ">")

        def once(wait_s: float) -> list[Entry]:
            try:
                return _entries(self._client.xreadgroup(group, consumer, wanted, count=count, block=_block_ms(wait_s)))
            except ResponseError as error:
                if not _group_is_gone(error):
                    raise
            for stream in streams:
                self._create_group(stream, group)
            return _entries(self._client.xreadgroup(group, consumer, wanted, count=count))

        return self._waiting(once, block_ms / 1000)

    def claim(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        claimed: list[Entry] = []
        cursor = "0-0"
        with translate(self._client):
            while len(claimed) < count:
                try:
                    answer: Any = self._client.xautoclaim(
                        stream, group, consumer, min_idle_time=min_idle_ms, start_id=cursor, count=count - len(claimed)
                    )
                except ResponseError as error:
                    if not _group_is_gone(error):
                        raise
                    self._create_group(stream, group)
                    return claimed
                claimed += _entries([(stream.encode(), answer[1])])
                cursor = bytes(answer[0]).decode()
                if cursor == "0-0":
                    break
        return claimed

    def ack(self, stream: str, group: str, ids: Sequence[str]) -> None:
        if not ids:
            return
        with translate(self._client), self._client.pipeline(transaction=True) as pipe:
            pipe.xack(stream, group, *ids)
            pipe.xdel(stream, *ids)
            pipe.execute()

    def after(self, stream: str, last_id: str, *, count: int = 1000, block_ms: int = 0) -> list[Entry]:
        return self._newer({stream: last_id}, count, block_ms / 1000)

    def newest(self, stream: str, count: int = 1, *, before: str | None = None) -> list[Entry]:
        with translate(self._client):
            return _entries([(stream.encode(), self._client.xrevrange(stream, max=f"({before}" if before else "+", count=count))])

    def after_each(self, last_ids: Mapping[str, str], *, count: int = 1000) -> list[Entry]:
        return self._newer(last_ids, count, 0.0) if last_ids else []

    def wait_for_newer(self, last_ids: Mapping[str, str], *, timeout_s: float) -> list[str]:
        return sorted({entry.stream for entry in self._newer(last_ids, 1, timeout_s)})

    def newest_each(self, streams: Sequence[str]) -> list[Entry | None]:
        with translate(self._client), self._client.pipeline(transaction=False) as pipe:
            for stream in streams:
                pipe.xrevrange(stream, count=1)
            found = [_entries([(stream.encode(), answer)]) for stream, answer in zip(streams, pipe.execute(), strict=True)]
        return [entries[0] if entries else None for entries in found]

    def length(self, stream: str) -> int:
        with translate(self._client):
            size: Any = self._client.xlen(stream)
        return int(size)

    def answer(self, replies: Iterable[tuple[str, bytes]], stream: str, group: str, ids: Sequence[str], *, life_s: int = 60) -> None:
        by_key: dict[str, list[bytes]] = {}
        for key, frame in replies:
            by_key.setdefault(key, []).append(frame)
        with translate(self._client), self._client.pipeline(transaction=False) as pipe:
            for key, frames in by_key.items():
                pipe.rpush(key, *frames)
                pipe.expire(key, life_s)
            if ids:
                pipe.xack(stream, group, *ids)
                pipe.xdel(stream, *ids)
            pipe.execute()

    def take_replies(self, key: str, *, timeout_s: float, count: int = 16) -> list[bytes]:
        return self._waiting(lambda wait_s: self._pop(key, wait_s, count), timeout_s)

    def put(self, key: str, value: bytes, *, life_s: float | None = None) -> None:
        with translate(self._client):
            self._client.set(key, value, px=None if life_s is None else max(1, round(life_s * 1000)))

    def get_each(self, names: Sequence[str]) -> list[bytes | None]:
        with translate(self._client):
            found: Any = self._client.mget(names) if names else []
        return [value if value is None else bytes(value) for value in found]

    def values(self, prefix: str) -> dict[str, bytes]:
        with translate(self._client):
            names = sorted(set(self._client.scan_iter(match=f"{prefix.translate(_GLOB)}*", count=_SCAN_COUNT)))
            found: Any = self._client.mget(names) if names else []
        return {name.decode(): value for name, value in zip(names, found, strict=True) if value is not None}

    def delete(self, *names: str) -> None:
        if names:
            with translate(self._client):
                self._client.delete(*names)

    def dead_letter(self, entry: Entry, reason: str) -> None:
        with translate(self._client), self._client.pipeline(transaction=True) as pipe:
            pipe.incr(keys.DEAD_COUNT)
            pipe.xadd(keys.DEAD, {FIELD: dead_frame(entry, reason, now_ms())}, maxlen=DEAD_LENGTH, approximate=False)
            pipe.execute()

    def ping(self) -> float:
        began = time.perf_counter()
        with translate(self._client):
            self._client.ping()
        return time.perf_counter() - began

    def close(self) -> None:
        self._client.close()

    def _newer(self, last_ids: Mapping[str, str], count: int, wait_s: float) -> list[Entry]:
        wanted: Any = dict(last_ids)
        return self._waiting(lambda left_s: _entries(self._client.xread(wanted, count=count, block=_block_ms(left_s))), wait_s)

    def _waiting(self, once: Callable[[float], list[T]], wait_s: float) -> list[T]:
        deadline = time.monotonic() + wait_s
        while True:
            with translate(self._client):
                found = once(min(deadline - time.monotonic(), self._longest_wait_s))
            if found or time.monotonic() >= deadline:
                return found

    def _pop(self, key: str, wait_s: float, count: int) -> list[bytes]:
        if wait_s < 0.001:
            some: Any = self._client.lpop(key, count)
            return [bytes(frame) for frame in some or ()]
        # Both commands leave in one packet; the server runs the second when the first has its frame, so nothing waits twice.
        with self._client.pipeline(transaction=False) as pipe:
            pipe.blpop([key], timeout=wait_s)
            if count > 1:
                pipe.lpop(key, count - 1)
            first, *rest = pipe.execute()
        head = [bytes(first[1])] if first else []
        return head + [bytes(frame) for frame in (rest[0] or () if rest else ())]

    def _create_group(self, stream: str, group: str) -> None:
        try:
            self._client.xgroup_create(stream, group, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


def _block_ms(wait_s: float) -> int | None:
    wait_ms = round(wait_s * 1000)
    return wait_ms if wait_ms > 0 else None  # BLOCK 0 would wait for ever


def _group_is_gone(error: Exception) -> bool:
    # A reader that was waiting when the stream was deleted hears UNBLOCKED or a missing key instead of NOGROUP.
    return str(error).startswith(("NOGROUP", "UNBLOCKED")) or "key no longer exists" in str(error)


def _entries(answer: Any) -> list[Entry]:
    entries = [
        Entry(stream.decode(), entry_id.decode(), fields.get(FIELD, b""))
        for stream, items in answer or ()
        for entry_id, fields in items
        if entry_id is not None and fields is not None
    ]
    return by_age(entries) if len(answer or ()) > 1 else entries


def control_url_of(broker: BrokerConfig) -> str:
    """The address of the control plane; raises `ConfigError` where none is set."""
    if not broker.control_url:
        raise ConfigError("no broker: set broker.control_url (AZQ_BROKER__CONTROL_URL), or use `azq up`, which starts one")
    return broker.control_url


def connect_at_start(broker: BrokerConfig) -> redis.Redis:
    """As `connect` to the control plane; but under a service manager a broker that is away is waited for, however late it comes.

    Whole sites lose power: their machines boot before the broker does, and a service that ends each time may run out of starts, or
    spends the wait on loading Python. Without a service manager a person waits for an answer: `BrokerUnavailable` is raised at once.
    """
    url, timeout_s, failures = control_url_of(broker), broker.connect_timeout_s, 0
    while True:
        try:
            return connect(url, timeout_s=timeout_s)
        except BrokerUnavailable as error:
            if not os.environ.get("NOTIFY_SOCKET"):
                raise
            if not failures:
                log.warning("broker_away", reason=str(error), remedy="waits until it answers")
            failures += 1
            pause_s = BACKOFF.pause_s(failures)
            # The start takes longer than the unit allows: this pause, the next try, and some room.
            notify(f"STATUS=waiting for the broker: {error}", more_time(pause_s + 2 * timeout_s + 30))
            threading.Event().wait(pause_s)
