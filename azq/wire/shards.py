"""Which data broker carries what, where there are several. Pure.

Highest random weight: every broker draws a number for a key and the largest draw wins, so that one broker more or less moves only its own
share. Brokers are known by their place in the list of addresses, which is the same on every host; new ones go to its end.
Thaler and Ravishankar, IEEE/ACM Transactions on Networking 6(1), 1998.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

_MARK = "#"  # between a client's name and the broker that it listens on


def data_name(place: int) -> str:
    """What the data plane at this place of the list is called: `data`, `data1`, `data2`, ..."""
    return f"data{place or ''}"


def data_names(count: int) -> tuple[str, ...]:
    """The names of so many data planes, in their order."""
    return tuple(data_name(place) for place in range(count))


def ranked(key: str, shards: Iterable[int]) -> tuple[int, ...]:
    """The brokers in the order of a key's preference."""
    return tuple(sorted(shards, key=lambda shard: _draw(key, shard), reverse=True))


def on_shard(client: str, shard: int) -> str:
    """A client's name for replies, which says where it listens."""
    return f"{client}{_MARK}{shard}"


def shard_named(name: str, count: int) -> int:
    """Where a client or its reply list is, by its name; 0 where the name does not say."""
    digits = name.rpartition(_MARK)[2] if _MARK in name else ""
    return int(digits) if digits.isascii() and digits.isdigit() and int(digits) < count else 0


def _draw(key: str, shard: int) -> bytes:
    return hashlib.blake2b(f"{shard}:{key}".encode(), digest_size=8).digest()
