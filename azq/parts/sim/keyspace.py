"""What a simulated server holds, and the commands on it that azq sends, as Redis 6.2 answers them.

A command depends on its arguments, the keys and `now_ms` alone. Iteration follows insertion, never a hash, and is the same in each process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any, TypeAlias

from redis.exceptions import ResponseError

Reply: TypeAlias = Any  # int, bytes, None, or a list of them
Commands: TypeAlias = Mapping[str, Callable[..., Reply]]  # by name, of a keyspace and their arguments


class Status(bytes):
    """A reply such as OK, which scripts tell from a string."""


OK = Status(b"OK")


class Hash(dict[bytes, bytes]):
    """Fields in order of insertion."""


class Set(dict[bytes, None]):
    """Members in order of insertion."""


class Scores(dict[bytes, float]):
    """A sorted set."""


#: types of values, as servers name them
NAMES: dict[type, bytes] = {bytes: b"string", Hash: b"hash", Set: b"set", Scores: b"zset", list: b"list"}


@dataclass
class Keyspace:
    """All keys and when they expire, at one moment."""

    now_ms: int = 0
    values: dict[bytes, Any] = field(default_factory=dict)
    expires: dict[bytes, int] = field(default_factory=dict)

    def has(self, key: bytes) -> bool:
        """Whether a key is there; one whose time is over goes."""
        if key in self.expires and self.expires[key] <= self.now_ms:
            self.drop(key)
        return key in self.values

    def drop(self, key: bytes) -> None:
        self.expires.pop(key, None)
        self.values.pop(key, None)

    def get(self, key: bytes, kind: Any) -> Any:
        """The value of a type, which is empty and not there where there is no key. Raises `ResponseError` for another type's."""
        if not self.has(key):
            return kind()
        value = self.values[key]
        if type(value) is not kind:
            raise ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def made(self, key: bytes, kind: Any) -> Any:
        """As `get`, and the key is there afterwards."""
        value = self.get(key, kind)
        return self.values.setdefault(key, value)

    def trimmed(self, key: bytes, value: Any) -> None:
        """An empty hash, set or list is no key."""
        if not value:
            self.drop(key)


# -- keys


def _del(keys: Keyspace, *names: bytes) -> Reply:
    there = [name for name in dict.fromkeys(names) if keys.has(name)]
    for name in there:
        keys.drop(name)
    return len(there)


def _expire(keys: Keyspace, key: bytes, seconds: bytes) -> Reply:
    if keys.has(key):
        keys.expires[key] = keys.now_ms + 1000 * int(seconds)
    return int(key in keys.values)


def _rename(keys: Keyspace, key: bytes, name: bytes) -> Reply:
    value = keys.values[key]
    for old in (key, name):
        keys.drop(old)
    keys.values[name] = value  # azq says next when it expires
    return OK


def _scan(keys: Keyspace, _: bytes, *options: bytes) -> Reply:
    glob = dict(zip(options[::2], options[1::2], strict=True))[b"MATCH"].decode().replace("\\", "")
    matched = re.compile(translate(glob))
    return [b"0", [key for key in list(keys.values) if keys.has(key) and matched.match(key.decode())]]


# -- strings


def _set(keys: Keyspace, key: bytes, value: bytes, *options: bytes) -> Reply:
    words = [option.upper() for option in options]
    if b"NX" in words and keys.has(key):
        return None
    keys.drop(key)
    keys.values[key] = value
    for unit, length_ms in ((b"PX", 1), (b"EX", 1000)):
        if unit in words:
            keys.expires[key] = keys.now_ms + length_ms * int(options[words.index(unit) + 1])
    return OK


# -- hashes


def _hset(keys: Keyspace, key: bytes, *pairs: bytes) -> Reply:
    return _put(keys, key, Hash, zip(pairs[::2], pairs[1::2], strict=True))


def _hincrby(keys: Keyspace, key: bytes, name: bytes, by: bytes) -> Reply:
    count = int(keys.get(key, Hash).get(name, b"0")) + int(by)
    _hset(keys, key, name, b"%d" % count)
    return count


# -- sorted sets and lists


def _zrange(keys: Keyspace, key: bytes, first: bytes, last: bytes) -> Reply:
    held = keys.get(key, Scores)
    return _span(sorted(held, key=lambda member: (held[member], member)), first, last)


def _lrem(keys: Keyspace, key: bytes, count: bytes, item: bytes) -> Reply:
    held = keys.get(key, list)
    gone = min(held.count(item), int(count) or len(held))
    for _ in range(gone):
        held.remove(item)
    keys.trimmed(key, held)
    return gone


# -- of several commands


def _put(keys: Keyspace, key: bytes, kind: type, pairs: Iterable[tuple[bytes, Any]]) -> int:
    """Adds fields or members; how many are new."""
    held = keys.made(key, kind)
    before = len(held)
    held.update(pairs)
    return len(held) - before


def _removed(kind: type) -> Callable[..., Reply]:
    """A command that takes fields or members away."""

    def command(keys: Keyspace, key: bytes, *names: bytes) -> Reply:
        held = keys.get(key, kind)
        gone = [name for name in dict.fromkeys(names) if name in held]
        for name in gone:
            del held[name]
        keys.trimmed(key, held)
        return len(gone)

    return command


def _pushed(keys: Keyspace, key: bytes, *items: bytes, first: bool = False) -> int:
    held = keys.made(key, list)
    held[:] = [*items[::-1], *held] if first else [*held, *items]
    return len(held)


def _popped(keys: Keyspace, key: bytes, place: int) -> bytes | None:
    held = keys.get(key, list)
    item = held.pop(place) if held else None
    keys.trimmed(key, held)
    return item


def _span(items: Sequence[bytes], first: bytes, last: bytes) -> list[bytes]:
    start, end = (place if (place := int(word)) >= 0 else max(place + len(items), -1) for word in (first, last))
    return list(items[max(start, 0) : end + 1]) if end >= 0 else []


#: commands that look something up
LOOKUPS: Commands = {
    "TIME": lambda keys: [b"%d" % (keys.now_ms // 1000), b"%d" % (keys.now_ms % 1000 * 1000)],
    "SCAN": _scan,
    "TYPE": lambda keys, key: Status(NAMES[type(keys.values[key])] if keys.has(key) else b"none"),
    "EXISTS": lambda keys, *names: sum(map(keys.has, names)),
    "GET": lambda keys, key: keys.get(key, bytes) if keys.has(key) else None,
    "MGET": lambda keys, *names: [value if keys.has(name) and isinstance(value := keys.values[name], bytes) else None for name in names],
    "HGET": lambda keys, key, name: keys.get(key, Hash).get(name),
    "HMGET": lambda keys, key, *names: list(map(keys.get(key, Hash).get, names)),
    "HGETALL": lambda keys, key: [part for pair in keys.get(key, Hash).items() for part in pair],
    "HKEYS": lambda keys, key: list(keys.get(key, Hash)),
    "HLEN": lambda keys, key: len(keys.get(key, Hash)),
    "HEXISTS": lambda keys, key, name: int(name in keys.get(key, Hash)),
    "SMEMBERS": lambda keys, key: list(keys.get(key, Set)),
    "SISMEMBER": lambda keys, key, member: int(member in keys.get(key, Set)),
    "SCARD": lambda keys, key: len(keys.get(key, Set)),
    "ZRANGE": _zrange,
    "ZSCORE": lambda keys, key, member: b"%.17g" % held[member] if member in (held := keys.get(key, Scores)) else None,
    "ZCARD": lambda keys, key: len(keys.get(key, Scores)),
    "LINDEX": lambda keys, key, place: next(iter(_span(keys.get(key, list), place, place)), None),
    "LLEN": lambda keys, key: len(keys.get(key, list)),
    "LRANGE": lambda keys, key, first, last: _span(keys.get(key, list), first, last),
}
#: commands that change something
CHANGES: Commands = {
    "DEL": _del,
    "UNLINK": _del,
    "EXPIRE": _expire,
    "RENAME": _rename,
    "SET": _set,
    "HSET": _hset,
    "HSETNX": lambda keys, key, name, value: 0 if name in keys.get(key, Hash) else _hset(keys, key, name, value),
    "HINCRBY": _hincrby,
    "HDEL": _removed(Hash),
    "SADD": lambda keys, key, *members: _put(keys, key, Set, ((member, None) for member in members)),
    "SREM": _removed(Set),
    "ZADD": lambda keys, key, score, member: _put(keys, key, Scores, [(member, float(score))]),
    "ZREM": _removed(Scores),
    "LREM": _lrem,
    "LPUSH": lambda keys, key, *items: _pushed(keys, key, *items, first=True),
    "RPUSH": _pushed,
    "LPOP": lambda keys, key: _popped(keys, key, 0),
    "RPOP": lambda keys, key: _popped(keys, key, -1),
}
