"""Data brokers and this host's own clients as one: an inference worker reads all of them and answers each request where it came from.

Each broker has a thread that waits for entries, so none waits for another, nor the serving thread for any; one that is lost is left alone
until its thread hears from it again. Entry ids tell the broker (`<id>@<place>`), reply lists by their client's name (`azq.wire.shards`).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from azq import logs
from azq.bus.base import Entry, RequestBus
from azq.bus.redis import RedisBus
from azq.bus.same_host import HostRequests
from azq.config import BrokerConfig
from azq.errors import BrokerError
from azq.waiting import Backoff
from azq.wire import shards
from azq.wire.connect import CONNECT_TIMEOUT_S, open_client

WAIT_MS = 100  # of one wait in a server: how late a change of streams is noticed
TIMEOUT_S = 2.0  # of one command: a broker that hangs costs the others no more than this, once
BACKOFF = Backoff(0.1, 2.0)

T = TypeVar("T")


def open_requests(config: BrokerConfig, host: HostRequests | None = None) -> RequestBus:
    """The data plane of these settings, and what processes of this host ask directly, as an inference worker serves them.

    Raises `BrokerError` where no broker of it answers.
    """
    # The longest wait in a server is a tenth of a second: a socket that is silent for longer than usual is a broker out of reach.
    timeout_s = TIMEOUT_S if len(config.data_planes) > 1 else CONNECT_TIMEOUT_S
    buses = [RedisBus(open_client(url, timeout_s=timeout_s)) for url in config.data_planes]
    _check_one_answers(buses)
    return ShardedBus(buses, host=host)


@dataclass(frozen=True, slots=True)
class _ReadRequest:
    """What `read` was last asked for."""

    streams: tuple[str, ...]
    group: str
    consumer: str
    count: int


class ShardedBus(RequestBus):
    """The requests of several brokers and of clients of this host; threads may share it, one reads."""

    def __init__(self, buses: Sequence[RequestBus], *, host: HostRequests | None = None) -> None:
        self._changed = threading.Condition()
        self._brokers, self._host = len(buses), host
        self._shards = [_Shard(place, bus, self._changed) for place, bus in enumerate([*buses, *filter(None, [host])])]

    def read(self, streams: Sequence[str], group: str, consumer: str, *, count: int, block_ms: float) -> list[Entry]:
        """New frames of the streams, up to `count` of each from each broker; as many more are read ahead, so that those become one batch.

        Raises what is wrong with a broker of these streams while none of them can be reached and no client of this host is connected.
        """
        deadline_s = time.monotonic() + block_ms / 1e3
        request = _ReadRequest(tuple(streams), group, consumer, count) if streams else None
        with self._changed:
            for shard in self._shards:
                shard.ask(request)
            while not any(shard.ready for shard in self._shards):
                errors = [shard.error for shard in self._shards if shard.error] if streams else []
                if errors and len(errors) == self._brokers and not (self._host and self._host.connected):
                    raise errors[0].with_traceback(None)
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    break
            return [entry for shard in self._shards for entry in shard.take()]

    def claim(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        """Entries that were read and not acknowledged for `min_idle_ms`, of every broker that answers."""
        claimed: list[Entry] = []
        for shard in self._shards:
            items_there = shard.attempt(partial(shard.bus.claim, stream, group, consumer, min_idle_ms=min_idle_ms, count=count))
            with self._changed:
                claimed += [entry for entry in shard.marked(items_there or ()) if entry not in shard.ready]  # read ahead and not looked at
        return claimed

    def ack(self, stream: str, group: str, ids: Sequence[str]) -> None:
        """Acknowledges entries where they came from; those of a lost broker are lost with it or claimed when it is back."""
        for shard, items_there in self._apart(map(_unmarked, ids)):
            shard.attempt(partial(shard.bus.ack, stream, group, items_there))

    def answer(self, replies: Iterable[tuple[str, bytes]], stream: str, group: str, ids: Sequence[str], *, life_s: int = 60) -> None:
        """Answers clients where they listen and acknowledges entries where they came from, in one round trip to each broker.

        A client of a lost broker has moved on and asks again.
        """
        answered = dict(self._apart((self._place_of(key), (key, frame)) for key, frame in replies))
        done = dict(self._apart(map(_unmarked, ids)))
        for shard in {**answered, **done}:
            shard.attempt(partial(shard.bus.answer, answered.get(shard, []), stream, group, done.get(shard, []), life_s=life_s))

    def dead_letter(self, entry: Entry, reason: str) -> None:
        """Keeps an unreadable frame on the broker that it came from, one of this host's on the first."""
        place, entry_id = _unmarked(entry.id)
        shard = self._shards[place if place < self._brokers else 0]
        shard.attempt(partial(shard.bus.dead_letter, replace(entry, id=entry_id), reason))

    def close(self) -> None:
        """Ends the threads and drops all connections; entries read ahead stay pending until claimed."""
        with self._changed:
            for shard in self._shards:
                shard.closing = True
            self._changed.notify_all()
        for shard in self._shards:
            shard.end()

    def _apart(self, items: Iterable[tuple[int, T]]) -> Iterator[tuple[_Shard, list[T]]]:
        """What belongs to each broker, by its place."""
        by_place: dict[int, list[T]] = defaultdict(list)
        for place, item in items:
            by_place[place].append(item)
        for place, items_there in by_place.items():
            yield self._shards[place], items_there

    def _place_of(self, replies: str) -> int:
        """Where the client of a reply list listens."""
        if self._host is not None and self._host.has(replies):
            return self._brokers
        return shards.shard_named(replies, self._brokers)


class _Shard:
    """One broker: its connection, its reader, and whether it answers. Fields change with the condition held."""

    def __init__(self, place: int, bus: RequestBus, changed: threading.Condition) -> None:
        self.place = place
        self.bus = bus
        self.ready: list[Entry] = []
        self.error: BrokerError | None = None  # why it does not answer
        self.closing = False
        self._changed = changed
        self._wish: _ReadRequest | None = None
        self._thread: threading.Thread | None = None
        self._log = logs.get(__name__)

    def ask(self, wish: _ReadRequest | None) -> None:
        """Says what to read from now on."""
        if wish == self._wish:
            return
        self._wish = wish
        if self._thread is None:
            self._thread = threading.Thread(target=self._read_on, name=f"shard-{self.place}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def take(self) -> list[Entry]:
        """What was read; makes room for more."""
        taken, self.ready = self.ready, []
        if taken:
            self._changed.notify_all()
        return taken

    def marked(self, entries: Iterable[Entry]) -> list[Entry]:
        """Entries whose ids tell this broker."""
        return [replace(entry, id=f"{entry.id}@{self.place}") for entry in entries]

    def attempt(self, call: Callable[[], T]) -> T | None:
        """A command to a broker that answered last; a failure is noted and ends there."""
        try:
            return None if self.error else call()
        except BrokerError as error:
            with self._changed:
                self._lost(error)
            return None

    def end(self) -> None:
        """Waits for the reader and closes the connection."""
        if self._thread is not None:
            self._thread.join(TIMEOUT_S + WAIT_MS / 1e3)
        self.bus.close()

    def _read_on(self) -> None:
        failures = 0
        while (wish := self._next_wish(BACKOFF.pause_s(failures))) is not None:
            try:
                entries = self.bus.read(wish.streams, wish.group, wish.consumer, count=wish.count, block_ms=WAIT_MS)
            except BrokerError as error:
                failures += 1
                with self._changed:
                    self._lost(error)
                continue
            failures = 0
            with self._changed:
                self._heard(entries)

    def _next_wish(self, pause_s: float) -> _ReadRequest | None:
        """What to read, once there is room and the pause is over; None at the end."""
        with self._changed:
            if pause_s:
                self._changed.wait_for(lambda: self.closing, pause_s)
            self._changed.wait_for(lambda: self.closing or (self._wish is not None and len(self.ready) < self._wish.count))
            return None if self.closing or self._wish is None else replace(self._wish, count=self._wish.count - len(self.ready))

    def _lost(self, error: BrokerError) -> None:
        if not self.error:
            self._log.warning("data_plane_lost", plane=self.place, error=str(error))
        self.error = error
        self._changed.notify_all()

    def _heard(self, entries: list[Entry]) -> None:
        if self.error:
            self._log.info("data_plane_back", plane=self.place)
            self.error = None
        self.ready += self.marked(entries)
        if entries:
            self._changed.notify_all()


def _unmarked(marked: str) -> tuple[int, str]:
    """A broker's place and the id of an entry there."""
    entry_id, _, place = marked.rpartition("@")
    return int(place), entry_id


def _check_one_answers(buses: Sequence[RedisBus]) -> None:
    errors: list[BrokerError] = []
    for bus in buses:
        try:
            bus.ping()
        except BrokerError as error:
            errors.append(error)
    if len(errors) == len(buses):
        raise errors[0]
