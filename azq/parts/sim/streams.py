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
    most = None
    if words[0].upper() == b"MAXLEN":
        skipped = 3 if words[1] in (b"~", b"=") else 2
        most, words = int(words[skipped - 1]), words[skipped:]
    stream = keys.made(key, Stream)
    entry_id = max((keys.now_ms, 0), (stream.last[0], stream.last[1] + 1))  # azq leaves it to the server: "*"
    stream.ids.append(entry_id)
    stream.fields[entry_id] = list(words[1:])
    stream.last = entry_id
    while most is not None and len(stream.ids) > most:
        stream.remove(stream.ids[0])
    return b"%d-%d" % entry_id


def _xrevrange(keys: Keyspace, key: bytes, end: bytes, _: bytes, __: bytes, count: bytes) -> Reply:
    stream = keys.get(key, Stream)
    place = bisect_left if end.startswith(b"(") else bisect_right
    stop = len(stream.ids) if end == b"+" else place(stream.ids, _id(end.lstrip(b"(")))
    return stream.shown(stream.ids[:stop][::-1][: int(count)])


def _xread(keys: Keyspace, *words: bytes) -> Reply:
    count, names, ids = _reading(words)
    answer = []
    for name, last in zip(names, ids, strict=True):
        stream = keys.get(name, Stream)
        if newer := stream.after(_id(last), count):
            answer.append([name, stream.shown(newer)])
    return answer or None


def _xreadgroup(keys: Keyspace, _: bytes, name: bytes, consumer: bytes, *words: bytes) -> Reply:
    count, names, _ids = _reading(words)
    groups = [(key, *_group(keys, key, name)) for key in names]
    answer = []
    for key, stream, group in groups:
        if fresh := stream.after(group.last, count):
            group.last = fresh[-1]
            group.pending.update(dict.fromkeys(fresh, (consumer, keys.now_ms)))
            answer.append([key, stream.shown(fresh)])
    return answer or None


def _xgroup(keys: Keyspace, _: bytes, key: bytes, name: bytes, start: bytes, *options: bytes) -> Reply:
    if not keys.has(key) and b"MKSTREAM" not in [option.upper() for option in options]:
        raise ResponseError("ERR The XGROUP subcommand requires the key to exist")
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
    gone = [entry for entry in idle if entry not in stream.fields]
    claimed = [entry for entry in idle if entry in stream.fields]
    for entry in gone:
        del group.pending[entry]
    for entry in claimed[: int(most)]:
        group.pending[entry] = (consumer, keys.now_ms)
    rest = claimed[int(most) :]
    return [b"%d-%d" % (rest[0] if rest else FIRST), stream.shown(claimed[: int(most)]), [b"%d-%d" % entry for entry in gone]]


def _group(keys: Keyspace, key: bytes, name: bytes) -> tuple[Stream, ConsumerGroup]:
    stream = keys.get(key, Stream)
    if name not in stream.groups:
        raise ResponseError(f"NOGROUP No such key '{key.decode()}' or consumer group '{name.decode()}'")
    return stream, stream.groups[name]


def _reading(words: Sequence[bytes]) -> tuple[int, Sequence[bytes], Sequence[bytes]]:
    """Count, streams and ids of a read that does not wait."""
    places = {word.upper(): place for place, word in enumerate(words) if word.upper() in (b"COUNT", b"STREAMS")}
    wanted = words[places[b"STREAMS"] + 1 :]
    return int(words[places[b"COUNT"] + 1]), wanted[: len(wanted) // 2], wanted[len(wanted) // 2 :]


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
