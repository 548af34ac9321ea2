"""A bus in this process's memory: the double of `azq.bus.redis.RedisBus`, for tests and for one-process loops."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from azq.bus.base import Entry
from azq.bus.dead_letters import DEAD_LENGTH, dead_frame
from azq.clock import now_ms
from azq.errors import BrokerUnavailable
from azq.wire import keys

Id = tuple[int, int]
T = TypeVar("T")


@dataclass(slots=True)
class _Group:
    last: Id = (0, 0)
    pending: dict[Id, float] = field(default_factory=dict)  # id -> when it was delivered last


@dataclass(slots=True)
class _Stream:
    ids: list[Id] = field(default_factory=list)
    frames: dict[Id, bytes] = field(default_factory=dict)
    groups: dict[str, _Group] = field(default_factory=dict)
    newest: Id = (0, 0)


class MemoryBus:
    """Safe to share between threads. `clock` (seconds) decides lives and idle times; waiting is in real time.

    With `down` set every call raises `BrokerUnavailable`, as an unreachable broker does; what it holds stays.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._streams: dict[str, _Stream] = {}
        self._lists: dict[str, tuple[list[bytes], float]] = {}  # frames, when they expire
        self._values: dict[str, tuple[bytes, float | None]] = {}
        self.down = False

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str:
        """Appends a frame and returns its id."""
        with self._changed:
            self._check()
            entry_id = self._append(stream, frame)
            if max_length is not None:
                self._trim(stream, max_length)
            self._changed.notify_all()
            return _text(entry_id)

    def publish_each(self, frames: Sequence[tuple[str, bytes]], *, max_length: int | None = None) -> None:
        """Appends a frame to each stream named with it."""
        for stream, frame in frames:
            self.publish(stream, frame, max_length=max_length)

    def read(self, streams: Sequence[str], group: str, consumer: str, *, count: int, block_ms: int) -> list[Entry]:
        """Up to `count` new frames of each stream, oldest first."""

        def once() -> list[Entry]:
            entries = [entry for stream in streams for entry in self._deliver(stream, group, count)]
            return sorted(entries, key=lambda entry: _id(entry.id))

        return self._wait(once, block_ms / 1000)

    def claim(self, stream: str, group: str, consumer: str, *, min_idle_ms: int, count: int) -> list[Entry]:
        """Takes over entries that were not acknowledged for `min_idle_ms`."""
        with self._changed:
            self._check()
            held, members = self._stream(stream), self._group(stream, group)
            now = self._clock()
            idle = sorted(key for key, since in members.pending.items() if (now - since) * 1000 >= min_idle_ms)
            there = [key for key in idle if key in held.frames][:count]
            for key in there:
                members.pending[key] = now
            return [Entry(stream, _text(key), held.frames[key]) for key in there]

    def ack(self, stream: str, group: str, ids: Sequence[str]) -> None:
        """Acknowledges and deletes entries."""
        with self._changed:
            self._check()
            if stream not in self._streams:
                return
            held = self._streams[stream]
            for entry_id in map(_id, ids):
                if group in held.groups:
                    held.groups[group].pending.pop(entry_id, None)
                if held.frames.pop(entry_id, None) is not None:
                    held.ids.remove(entry_id)

    def after(self, stream: str, last_id: str, *, count: int = 1000, block_ms: int = 0) -> list[Entry]:
        """Frames after `last_id`, oldest first."""
        start = _id(last_id)
        return self._wait(lambda: self._since(stream, start, count), block_ms / 1000)

    def newest(self, stream: str, count: int = 1, *, before: str | None = None) -> list[Entry]:
        """The newest frames, newest first; with `before` those older than that id."""
        with self._changed:
            self._check()
            held = self._streams.get(stream, _Stream())
            end = len(held.ids) if before is None else bisect_left(held.ids, _id(before))
            return [Entry(stream, _text(key), held.frames[key]) for key in reversed(held.ids[max(0, end - count) : end])]

    def after_each(self, last_ids: Mapping[str, str], *, count: int = 1000) -> list[Entry]:
        """Up to `count` frames of each stream after the id given for it, by age."""
        with self._changed:
            self._check()
            found = [entry for stream, last_id in last_ids.items() for entry in self._since(stream, _id(last_id), count)]
            return sorted(found, key=lambda entry: _id(entry.id))

    def wait_for_newer(self, last_ids: Mapping[str, str], *, timeout_s: float) -> list[str]:
        """Streams with an entry after the id given for them."""
        starts = {stream: _id(last_id) for stream, last_id in last_ids.items()}
        return self._wait(lambda: sorted(stream for stream, start in starts.items() if self._since(stream, start, 1)), timeout_s)

    def newest_each(self, streams: Sequence[str]) -> list[Entry | None]:
        """The newest frame of each stream; None where there is none."""
        with self._changed:
            return [next(iter(self.newest(stream)), None) for stream in streams]

    def length(self, stream: str) -> int:
        """Entries in a stream."""
        with self._changed:
            self._check()
            return len(self._streams[stream].ids) if stream in self._streams else 0

    def reply(self, replies: Iterable[tuple[str, bytes]], *, life_s: int = 60) -> None:
        """Appends frames to reply lists."""
        with self._changed:
            self._check()
            for key, frame in replies:
                frames = self._frames(key)
                frames.append(frame)
                self._lists[key] = (frames, self._clock() + life_s)
            self._changed.notify_all()

    def answer(self, replies: Iterable[tuple[str, bytes]], stream: str, group: str, ids: Sequence[str], *, life_s: int = 60) -> None:
        """Appends frames to reply lists, then acknowledges and deletes entries."""
        self.reply(replies, life_s=life_s)
        self.ack(stream, group, ids)

    def take_replies(self, key: str, *, timeout_s: float, count: int = 16) -> list[bytes]:
        """Up to `count` frames as soon as there is one; [] after `timeout_s`."""

        def once() -> list[bytes]:
            frames = self._frames(key)
            taken = frames[:count]
            del frames[:count]
            return taken

        return self._wait(once, timeout_s)

    def put(self, key: str, value: bytes, *, life_s: float | None = None) -> None:
        """Sets a value, with a life where given."""
        with self._changed:
            self._check()
            self._values[key] = (value, None if life_s is None else self._clock() + life_s)

    def get(self, key: str) -> bytes | None:
        """A value, or None."""
        with self._changed:
            self._check()
            return self._live(key)

    def get_each(self, names: Sequence[str]) -> list[bytes | None]:
        """The values of many keys; None where there is none."""
        with self._changed:
            return [self.get(name) for name in names]

    def values(self, prefix: str) -> dict[str, bytes]:
        """All live values whose key starts with `prefix`, by key."""
        with self._changed:
            self._check()
            found = {key: self._live(key) for key in sorted(self._values) if key.startswith(prefix)}
            return {key: value for key, value in found.items() if value is not None}

    def delete(self, *names: str) -> None:
        """Deletes keys of any type."""
        with self._changed:
            self._check()
            for name in names:
                self._streams.pop(name, None)
                self._lists.pop(name, None)
                self._values.pop(name, None)

    def dead_letter(self, entry: Entry, reason: str) -> None:
        """Counts an unreadable frame and keeps its head."""
        with self._changed:
            self._check()
            self._append(keys.DEAD, dead_frame(entry, reason, now_ms()))
            self._trim(keys.DEAD, DEAD_LENGTH)
            self._values[keys.DEAD_COUNT] = (str(int(self._live(keys.DEAD_COUNT) or 0) + 1).encode(), None)

    def dead_letters(self) -> int:
        """Unreadable frames counted so far."""
        return int(self.get(keys.DEAD_COUNT) or 0)

    def ping(self) -> float:
        """No time at all."""
        self._check()
        return 0.0

    def close(self) -> None:
        """Nothing to drop."""

    # -- all below with the lock held

    def _check(self) -> None:
        if self.down:
            raise BrokerUnavailable("no broker in memory (it was taken down); put it up again")

    def _wait(self, once: Callable[[], list[T]], wait_s: float) -> list[T]:
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                self._check()
                found = once()
                left = deadline - time.monotonic()
                if found or left <= 0:
                    return found
                self._changed.wait(min(left, 0.05))  # lives may end and `down` may change without a word

    def _stream(self, name: str) -> _Stream:
        return self._streams.setdefault(name, _Stream())

    def _group(self, stream: str, group: str) -> _Group:
        return self._stream(stream).groups.setdefault(group, _Group())

    def _append(self, stream: str, frame: bytes) -> Id:
        held = self._stream(stream)
        now_ms = max(1, int(self._clock() * 1000))
        entry_id = (now_ms, 0) if now_ms > held.newest[0] else (held.newest[0], held.newest[1] + 1)
        held.newest = entry_id
        held.ids.append(entry_id)
        held.frames[entry_id] = frame
        return entry_id

    def _trim(self, stream: str, length: int) -> None:
        held = self._streams[stream]
        for entry_id in held.ids[: max(0, len(held.ids) - length)]:
            del held.frames[entry_id]
        del held.ids[: max(0, len(held.ids) - length)]

    def _since(self, stream: str, start: Id, count: int) -> list[Entry]:
        held = self._streams.get(stream, _Stream())
        first = bisect_right(held.ids, start)
        return [Entry(stream, _text(key), held.frames[key]) for key in held.ids[first : first + count]]

    def _deliver(self, stream: str, group: str, count: int) -> list[Entry]:
        members = self._group(stream, group)
        entries = self._since(stream, members.last, count)
        for entry in entries:
            members.last = _id(entry.id)
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


def _id(text: str) -> Id:
    milliseconds, _, sequence = text.partition("-")
    return int(milliseconds), int(sequence or 0)
