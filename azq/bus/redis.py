"""A bus on a Redis or Valkey server, with the command set of Redis 6.2, and the first connection to one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import redis
from redis.exceptions import ResponseError

from azq import logs
from azq.bus.base import DEAD_LENGTH, Bus, Entry, dead_frame, order
from azq.clock import now_ms
from azq.config import BrokerConfig
from azq.errors import BrokerError, BrokerUnavailable, ConfigError
from azq.process.liveness import kept_alive, more_time, notify
from azq.waiting import Backoff
from azq.wire import keys
from azq.wire.connect import CONNECT_TIMEOUT_S, connect, socket_timeout_s, translate
from azq.wire.fitness import CONTROL, admit

BACKOFF = Backoff(0.2, 5.0)  # of a start that waits for its broker
FIELD = b"f"  # the one field of every stream entry
log = logs.get(__name__)

T = TypeVar("T")
Command = tuple[Any, ...]
_SCAN_COUNT = 1000
_GLOB = str.maketrans({character: f"\\{character}" for character in "*?[]^\\"})


class RedisBus(Bus):
    """One broker instance. Safe to share between threads and to use after a fork: every call takes its own connection, but `post`
    and the `take_replies` after it in the same thread share one.

    A call that was cut off by a lost connection may have been done all the same: an appended frame can appear twice when the caller
    appends it again, and entries that were read stay pending for this consumer until they are claimed.
    """

    def __init__(self, client: redis.Redis | str) -> None:
        self._client = connect(client, blocking=True) if isinstance(client, str) else client
        # Half of the socket's patience: the server's "nothing came" must arrive before the socket gives up.
        self._longest_wait_s = max(0.05, socket_timeout_s(self._client) / 2)
        self._posted: _Line | None = None  # whose answers the next `take_replies` hears

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str:
        with translate(self._client):
            (entry_id,) = _ask(self._client, _append(stream, frame, max_length))
        return bytes(entry_id).decode()

    def publish_each(self, frames: Sequence[tuple[str, bytes]], *, max_length: int | None = None) -> None:
        with translate(self._client):
            _ask(self._client, *(_append(stream, frame, max_length) for stream, frame in frames))

    def post(self, stream: str, frame: bytes, *, max_length: int | None = None) -> None:
        with translate(self._client):
            line, self._posted = self._posted or _Line(self._client), None
            line.send(_append(stream, frame, max_length))
            self._posted = line

    def read(self, streams: Sequence[str], group: str, consumer: str, *, count: int, block_ms: float) -> list[Entry]:
        head, wanted = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count), ("STREAMS", *streams, *(">" for _ in streams))

        def once(wait_s: float) -> list[Entry]:
            try:
                return _entries(_ask(self._client, (*head, *_block(wait_s), *wanted))[0])
            except ResponseError as error:
                if not _group_is_gone(error):
                    raise
            for stream in streams:
                self._create_group(stream, group)
            return _entries(_ask(self._client, (*head, *wanted))[0])

        return self._waiting(once, block_ms / 1000)

    def claim(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        claimed: list[Entry] = []
        cursor = "0-0"
        with translate(self._client):
            while len(claimed) < count:
                try:
                    claim = ("XAUTOCLAIM", stream, group, consumer, min_idle_ms, cursor, "COUNT", count - len(claimed))
                    (answer,) = _ask(self._client, claim)
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

    def after(self, stream: str, last_id: str, *, count: int = 1000) -> list[Entry]:
        return self._newer({stream: last_id}, count, 0.0)

    def newest(self, stream: str, count: int = 1, *, before: str | None = None) -> list[Entry]:
        with translate(self._client):
            return _entries([(stream.encode(), _ask(self._client, _newest(stream, count, f"({before}" if before else "+"))[0])])

    def after_each(self, last_ids: Mapping[str, str], *, count: int = 1000) -> list[Entry]:
        return self._newer(last_ids, count, 0.0) if last_ids else []

    def wait_for_newer(self, last_ids: Mapping[str, str], *, timeout_s: float) -> list[str]:
        return sorted({entry.stream for entry in self._newer(last_ids, 1, timeout_s)})

    def newest_each(self, streams: Sequence[str]) -> list[Entry | None]:
        with translate(self._client):
            answers = _ask(self._client, *(_newest(stream) for stream in streams))
        result = [_entries([(stream.encode(), answer)]) for stream, answer in zip(streams, answers, strict=True)]
        return [entries[0] if entries else None for entries in result]

    def length(self, stream: str) -> int:
        with translate(self._client):
            size: Any = self._client.xlen(stream)
        return int(size)

    def answer(self, replies: Iterable[tuple[str, bytes]], stream: str, group: str, ids: Sequence[str], *, life_s: int = 60) -> None:
        by_key: dict[str, list[bytes]] = {}
        for key, frame in replies:
            by_key.setdefault(key, []).append(frame)
        commands: list[Command] = []
        for key, frames in by_key.items():
            commands += [("RPUSH", key, *frames), ("EXPIRE", key, life_s)]
        if ids:
            commands += [("XACK", stream, group, *ids), ("XDEL", stream, *ids)]
        with translate(self._client):
            _ask(self._client, *commands)

    def take_replies(self, key: str, *, timeout_s: float, count: int = 16) -> list[bytes]:
        return self._waiting(lambda wait_s: self._pop(key, wait_s, count), timeout_s)

    def put(self, key: str, value: bytes, *, life_s: float | None = None) -> None:
        with translate(self._client):
            self._client.set(key, value, px=None if life_s is None else max(1, round(life_s * 1000)))

    def get_each(self, names: Sequence[str]) -> list[bytes | None]:
        with translate(self._client):
            result: Any = self._client.mget(names) if names else []
        return [value if value is None else bytes(value) for value in result]

    def values(self, prefix: str) -> dict[str, bytes]:
        with translate(self._client):
            names = sorted(set(self._client.scan_iter(match=f"{prefix.translate(_GLOB)}*", count=_SCAN_COUNT)))
            result: Any = self._client.mget(names) if names else []
        return {name.decode(): value for name, value in zip(names, result, strict=True) if value is not None}

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
        wanted = ("STREAMS", *last_ids, *last_ids.values())
        return self._waiting(lambda left_s: _entries(_ask(self._client, ("XREAD", "COUNT", count, *_block(left_s), *wanted))[0]), wait_s)

    def _waiting(self, once: Callable[[float], list[T]], wait_s: float) -> list[T]:
        deadline = time.monotonic() + wait_s
        while True:
            with translate(self._client):
                result = once(min(deadline - time.monotonic(), self._longest_wait_s))
            if result or time.monotonic() >= deadline:
                return result

    def _pop(self, key: str, wait_s: float, count: int) -> list[bytes]:
        line, self._posted = self._posted or _Line(self._client), None
        if wait_s < 0.001:
            line.send(("LPOP", key, count))
            return line.hear()[-1] or []
        # Both commands leave in one packet; the server runs the second when the first has its frame, so nothing waits twice.
        line.send(("BLPOP", key, wait_s), *[("LPOP", key, count - 1)] * (count > 1))
        first, *others = line.hear()[-min(2, count) :]
        return [*(first or ())[1:], *(frame for some in others for frame in some or ())]

    def _create_group(self, stream: str, group: str) -> None:
        try:
            self._client.xgroup_create(stream, group, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


class _Line:
    """A connection of a client's pool, from the first command sent over it until all answers were heard.

    Commands go out as they are: redis-py's own methods take three times the CPU.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._connection: Any = self._pool.get_connection()
        self._unheard = 0

    def send(self, *commands: Command) -> None:
        """Sends commands in one packet."""
        with self._given_back_broken():
            self._connection.send_packed_command(self._connection.pack_commands(commands))
        self._unheard += len(commands)

    def hear(self) -> list[Any]:
        """The answers to all that was sent; the first error among them is raised."""
        with self._given_back_broken():
            answers = [self._answer() for _ in range(self._unheard)]
        self._pool.release(self._connection)
        for error in answers:
            if isinstance(error, ResponseError):
                raise error
        return answers

    def _answer(self) -> Any:
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error

    @contextmanager
    def _given_back_broken(self) -> Iterator[None]:
        """Drops the connection after an error: its replies may be out of step."""
        try:
            yield
        except BaseException:
            self._connection.disconnect()
            self._pool.release(self._connection)
            raise


def _ask(client: redis.Redis, *commands: Command) -> list[Any]:
    """The answers to commands in one round trip."""
    line = _Line(client)
    line.send(*commands)
    return line.hear()


def _append(stream: str, frame: bytes, max_length: int | None) -> Command:
    return ("XADD", stream, *(() if max_length is None else ("MAXLEN", "~", max_length)), "*", FIELD, frame)


def _newest(stream: str, count: int = 1, end: str = "+") -> Command:
    return "XREVRANGE", stream, end, "-", "COUNT", count


def _block(wait_s: float) -> Command:
    wait_ms = round(wait_s * 1000)
    return ("BLOCK", wait_ms) if wait_ms > 0 else ()  # BLOCK 0 would wait for ever


def _group_is_gone(error: Exception) -> bool:
    # A reader that was waiting when the stream was deleted hears UNBLOCKED or a missing key instead of NOGROUP.
    return str(error).startswith(("NOGROUP", "UNBLOCKED")) or "key no longer exists" in str(error)


def _entries(answer: Any) -> list[Entry]:
    entries = [
        Entry(stream.decode(), entry_id.decode(), fields[1] if fields[0] == FIELD else b"")
        for stream, items in answer or ()
        for entry_id, fields in (item for item in items if item is not None)
        if fields is not None
    ]
    return sorted(entries, key=lambda entry: order(entry.id)) if len(answer or ()) > 1 else entries


def control_url_of(broker: BrokerConfig) -> str:
    """The address of the control plane; raises `ConfigError` where none is set."""
    if not broker.control_url:
        raise ConfigError("no broker: set broker.control_url (AZQ_BROKER__CONTROL_URL), or use `azq up`, which starts one")
    return broker.control_url


def admitted(url: str, plane: str = CONTROL) -> redis.Redis:
    """As `connect`, to a server that is fit for a plane. Raises also as `azq.wire.fitness.admit`."""
    client = connect(url)
    try:
        admit(client, plane)
    except BaseException:
        client.close()
        raise
    return client


def admit_data_planes(broker: BrokerConfig) -> None:
    """Raises `ConfigError` for a data plane that never works; one that is away, or may come to work, is no reason not to start."""
    for url in set(broker.data_planes) - {broker.control_url}:
        with suppress(BrokerError):
            admitted(url, "data").close()


def connect_at_start(broker: BrokerConfig) -> redis.Redis:
    """As `connect` to the control plane; but under a service manager a broker that is away is waited for, however late it comes.

    Whole sites lose power: their machines boot before the broker does, and a service that ends each time may run out of starts, or
    spends the wait on loading Python; in a container it is the same. Else a person waits for an answer: `BrokerUnavailable` at once.
    Raises also as `azq.wire.fitness.admit`.
    """
    url, failures = control_url_of(broker), 0
    while True:
        try:
            return admitted(url)
        except BrokerUnavailable as error:
            if not kept_alive():
                raise
            if not failures:
                log.warning("broker_away", reason=str(error), remedy="waits until it answers")
            failures += 1
            pause_s = BACKOFF.pause_s(failures)
            # The start takes longer than the unit allows: this pause, the next try, and some room.
            notify(f"STATUS=waiting for the broker: {error}", more_time(pause_s + 2 * CONNECT_TIMEOUT_S + 30))
            threading.Event().wait(pause_s)
