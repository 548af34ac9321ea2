"""Commands on the streams of a simulated server: append, read, groups, claims."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from redis.exceptions import ResponseError

from azq.parts.sim.keyspace import NAMES, OK, Commands, Keyspace, Reply

StreamId: TypeAlias = tuple[int, int]

FIRST = (0, 0)


@dataclass
class ConsumerGroup:
    """A consumer group: the entry delivered last, and those not acknowledged as (consumer, when in ms)."""

    last: StreamId
    pending: dict[StreamId, tuple[bytes, int]] = field(default_factory=dict)


@dataclass
class Stream:
    """Entries by id, in order."""

    ids: list[StreamId] = field(default_factory=list)
    fields: dict[StreamId, list[bytes]] = field(default_factory=dict)
    last: StreamId = FIRST
    groups: dict[bytes, ConsumerGroup] = field(default_factory=dict)

    def remove(self, entry_id: StreamId) -> int:
        """1 where it was there."""
        if self.fields.pop(entry_id, None) is None:
            return 0
        del self.ids[bisect_left(self.ids, entry_id)]
        return 1

    def after(self, entry_id: StreamId, count: int) -> list[StreamId]:
        start = bisect_right(self.ids, entry_id)
        return self.ids[start : start + count]

    def shown(self, ids: Sequence[StreamId]) -> list[Reply]:
        """Entries as a server answers them."""
        return [[b"%d-%d" % entry_id, list(self.fields[entry_id])] for entry_id in ids]


NAMES[Stream] = b"stream"


def _xadd(keys: Keyspace, key: bytes, *words: bytes) -> Reply:
    stream = keys.made(key, Stream)
    entry_id = max((keys.now_ms, 0), (stream.last[0], stream.last[1] + 1))  # azq leaves it to the server: "*"
    stream.ids.append(entry_id)
    stream.fields[entry_id] = list(words[words.index(b"*") + 1 :])  # "MAXLEN ~" may leave more, and leaves all here
    stream.last = entry_id
    return b"%d-%d" % entry_id


def _xrevrange(keys: Keyspace, key: bytes, end: bytes, _: bytes, __: bytes, count: bytes) -> Reply:
    stream = keys.get(key, Stream)
    place = bisect_left if end.startswith(b"(") else bisect_right
    stop = len(stream.ids) if end == b"+" else place(stream.ids, _id(end.lstrip(b"(")))
    return stream.shown(stream.ids[:stop][::-1][: int(count)])


def _xread(keys: Keyspace, *words: bytes) -> Reply:
    count, lasts = _reading(words)
    newer = {name: keys.get(name, Stream).after(_id(last), count) for name, last in lasts.items()}
    return _answer(keys, newer)


def _xreadgroup(keys: Keyspace, _: bytes, name: bytes, consumer: bytes, *words: bytes) -> Reply:
    count, lasts = _reading(words)
    fresh = {}
    for key in lasts:
        stream, group = _group(keys, key, name)
        fresh[key] = stream.after(group.last, count)
        group.last = max([group.last, *fresh[key]])
        group.pending.update(dict.fromkeys(fresh[key], (consumer, keys.now_ms)))
    return _answer(keys, fresh)


def _xgroup(keys: Keyspace, _: bytes, key: bytes, name: bytes, start: bytes, __: bytes) -> Reply:
    stream = keys.made(key, Stream)
    if name in stream.groups:
        raise ResponseError("BUSYGROUP Consumer Group name already exists")
    stream.groups[name] = ConsumerGroup(stream.last if start == b"$" else _id(start))
    return OK


def _xack(keys: Keyspace, key: bytes, name: bytes, *ids: bytes) -> Reply:
    group = keys.get(key, Stream).groups.get(name)
    return sum(group.pending.pop(_id(entry), None) is not None for entry in ids) if group else 0


def _xautoclaim(keys: Keyspace, key: bytes, name: bytes, consumer: bytes, idle_ms: bytes, start: bytes, _: bytes, most: bytes) -> Reply:
    stream, group = _group(keys, key, name)
    waiting = [entry for entry in sorted(group.pending) if entry >= _id(start)]
    idle = [entry for entry in waiting if keys.now_ms - group.pending[entry][1] >= int(idle_ms)]
    claimed, rest = idle[: int(most)], idle[int(most) :]
    group.pending.update(dict.fromkeys(claimed, (consumer, keys.now_ms)))
    return [b"%d-%d" % (rest[0] if rest else FIRST), stream.shown(claimed), []]


def _group(keys: Keyspace, key: bytes, name: bytes) -> tuple[Stream, ConsumerGroup]:
    stream = keys.get(key, Stream)
    if name not in stream.groups:
        raise ResponseError(f"NOGROUP No such key '{key.decode()}' or consumer group '{name.decode()}'")
    return stream, stream.groups[name]


def _reading(words: Sequence[bytes]) -> tuple[int, dict[bytes, bytes]]:
    """Count, and ids by stream, of a read that does not wait."""
    wanted = words[words.index(b"STREAMS") + 1 :]
    return int(words[words.index(b"COUNT") + 1]), dict(zip(wanted, wanted[len(wanted) // 2 :], strict=False))


def _answer(keys: Keyspace, newer: dict[bytes, list[StreamId]]) -> Reply:
    return [[name, keys.get(name, Stream).shown(ids)] for name, ids in newer.items() if ids] or None


def _id(text: bytes) -> StreamId:
    milliseconds, _, number = text.partition(b"-")
    return int(milliseconds), int(number or 0)


LOOKUPS: Commands = {
    "XLEN": lambda keys, key: len(keys.get(key, Stream).ids),
    "XREVRANGE": _xrevrange,
    "XREAD": _xread,
}
CHANGES: Commands = {
    "XADD": _xadd,
    "XDEL": lambda keys, key, *ids: sum(map(keys.get(key, Stream).remove, map(_id, ids))),
    "XREADGROUP": _xreadgroup,
    "XGROUP": _xgroup,
    "XACK": _xack,
    "XAUTOCLAIM": _xautoclaim,
}
