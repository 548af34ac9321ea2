"""A bus in this process's memory: the double of `azq.bus.redis.RedisBus`, for tests and for one-process loops."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from azq.bus.base import DEAD_LENGTH, Bus, Entry, by_age, dead_frame, order
from azq.clock import now_ms
from azq.errors import BrokerUnavailable
from azq.wire import keys

Id = tuple[int, int]
T = TypeVar("T")


@dataclass(slots=True)
class _Consumers:
    last: Id = (0, 0)
    pending: dict[Id, float] = field(default_factory=dict)  # id -> when it was delivered last


@dataclass(slots=True)
class _Stream:
    ids: list[Id] = field(default_factory=list)
    frames: dict[Id, bytes] = field(default_factory=dict)
    groups: defaultdict[str, _Consumers] = field(default_factory=lambda: defaultdict(_Consumers))
    newest: Id = (0, 0)


class MemoryBus(Bus):
    """Safe to share between threads. `clock` (seconds) decides lives and idle times; waiting is in real time.

    With `down` set every call raises `BrokerUnavailable`, as an unreachable broker does; what it holds stays.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._streams: defaultdict[str, _Stream] = defaultdict(_Stream)
        self._lists: dict[str, tuple[list[bytes], float]] = {}  # frames, when they expire
        self._values: dict[str, tuple[bytes, float | None]] = {}
        self.down = False

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str:
        with self._held():
            return _text(self._append(stream, frame, max_length))

    def publish_each(self, frames: Sequence[tuple[str, bytes]], *, max_length: int | None = None) -> None:
        for stream, frame in frames:
            self.publish(stream, frame, max_length=max_length)

    def read(self, streams: Sequence[str], group: str, consumer: str, *, count: int, block_ms: float) -> list[Entry]:
        return self._wait(lambda: by_age(entry for stream in streams for entry in self._deliver(stream, group, count)), block_ms / 1000)

    def claim(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        with self._held():
            pending, now = self._streams[stream].groups[group].pending, self._clock()
            idle = sorted(key for key, since in pending.items() if (now - since) * 1000 >= min_idle_ms)
            there = [key for key in idle if key in self._streams[stream].frames][:count]
            pending.update(dict.fromkeys(there, now))
            return self._entries(stream, there)

    def ack(self, stream: str, group: str, ids: Sequence[str]) -> None:
        with self._held():
            held = self._streams[stream]
            for entry_id in map(order, ids):
                held.groups[group].pending.pop(entry_id, None)
                if held.frames.pop(entry_id, None) is not None:
                    held.ids.remove(entry_id)

    def after(self, stream: str, last_id: str, *, count: int = 1000, block_ms: int = 0) -> list[Entry]:
        return self._wait(lambda: self._since(stream, order(last_id), count), block_ms / 1000)

    def newest(self, stream: str, count: int = 1, *, before: str | None = None) -> list[Entry]:
        with self._held():
            ids = self._streams[stream].ids
            end = len(ids) if before is None else bisect_left(ids, order(before))
            return self._entries(stream, reversed(ids[max(0, end - count) : end]))

    def after_each(self, last_ids: Mapping[str, str], *, count: int = 1000) -> list[Entry]:
        with self._held():
            return by_age(entry for stream, last_id in last_ids.items() for entry in self._since(stream, order(last_id), count))

    def wait_for_newer(self, last_ids: Mapping[str, str], *, timeout_s: float) -> list[str]:
        starts = {stream: order(last_id) for stream, last_id in last_ids.items()}
        return self._wait(lambda: sorted(stream for stream, start in starts.items() if self._since(stream, start, 1)), timeout_s)

    def newest_each(self, streams: Sequence[str]) -> list[Entry | None]:
        with self._held():
            return [next(iter(self.newest(stream)), None) for stream in streams]

    def length(self, stream: str) -> int:
        with self._held():
            return len(self._streams[stream].ids)

    def answer(self, replies: Iterable[tuple[str, bytes]], stream: str, group: str, ids: Sequence[str], *, life_s: int = 60) -> None:
        with self._held():
            for key, frame in replies:
                self._lists[key] = ([*self._frames(key), frame], self._clock() + life_s)
            if ids:
                self.ack(stream, group, ids)
            self._changed.notify_all()

    def take_replies(self, key: str, *, timeout_s: float, count: int = 16) -> list[bytes]:
        def once() -> list[bytes]:
            frames = self._frames(key)
            taken = frames[:count]
            del frames[:count]
            return taken

        return self._wait(once, timeout_s)

    def put(self, key: str, value: bytes, *, life_s: float | None = None) -> None:
        with self._held():
            self._values[key] = (value, None if life_s is None else self._clock() + life_s)

    def get_each(self, names: Sequence[str]) -> list[bytes | None]:
        with self._held():
            return [self._live(name) for name in names]

    def values(self, prefix: str) -> dict[str, bytes]:
        with self._held():
            found = {key: self._live(key) for key in sorted(self._values) if key.startswith(prefix)}
            return {key: value for key, value in found.items() if value is not None}

    def delete(self, *names: str) -> None:
        with self._held():
            for name in names:
                self._streams.pop(name, None)
                self._lists.pop(name, None)
                self._values.pop(name, None)

    def dead_letter(self, entry: Entry, reason: str) -> None:
        with self._held():
            self._append(keys.DEAD, dead_frame(entry, reason, now_ms()), DEAD_LENGTH)
            self.put(keys.DEAD_COUNT, str(self.dead_letters() + 1).encode())

    def ping(self) -> float:
        with self._held():
            return 0.0

    def close(self) -> None:
        """What it holds stays."""

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The lock, which a call may take that has it; all below is called with it."""
        with self._changed:
            self._check()
            yield

    def _check(self) -> None:
        if self.down:
            raise BrokerUnavailable("no broker in memory (it was taken down); put it up again")

    def _wait(self, once: Callable[[], list[T]], wait_s: float) -> list[T]:
        deadline = time.monotonic() + wait_s
        with self._held():
            while not (found := once()) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, 0.05))  # lives may end and `down` may change without a word
                self._check()
            return found

    def _append(self, stream: str, frame: bytes, max_length: int | None) -> Id:
        held, now_ms = self._streams[stream], max(1, int(self._clock() * 1000))
        entry_id = (now_ms, 0) if now_ms > held.newest[0] else (held.newest[0], held.newest[1] + 1)
        held.newest = entry_id
        held.ids.append(entry_id)
        held.frames[entry_id] = frame
        surplus = 0 if max_length is None else max(0, len(held.ids) - max_length)
        for gone in held.ids[:surplus]:
            del held.frames[gone]
        del held.ids[:surplus]
        self._changed.notify_all()
        return entry_id

    def _entries(self, stream: str, ids: Iterable[Id]) -> list[Entry]:
        return [Entry(stream, _text(key), self._streams[stream].frames[key]) for key in ids]

    def _since(self, stream: str, start: Id, count: int) -> list[Entry]:
        ids = self._streams[stream].ids
        first = bisect_right(ids, start)
        return self._entries(stream, ids[first : first + count])

    def _deliver(self, stream: str, group: str, count: int) -> list[Entry]:
        members = self._streams[stream].groups[group]
        entries = self._since(stream, members.last, count)
        for entry in entries:
            members.last = order(entry.id)
            members.pending[members.last] = self._clock()
        return entries

    def _frames(self, key: str) -> list[bytes]:
        frames, until = self._lists.get(key, ([], float("inf")))
        return frames if self._clock() < until else []

    def _live(self, key: str) -> bytes | None:
        value, until = self._values.get(key, (None, None))
        return value if until is None or self._clock() < until else None


def _text(entry_id: Id) -> str:
    return f"{entry_id[0]}-{entry_id[1]}"
