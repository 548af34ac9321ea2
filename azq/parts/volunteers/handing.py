"""What contributors, and the addresses they come from, do with games that they are handed, and how many bytes of theirs wait. Pure.

Keys are contributors, and addresses with an @ before them.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from azq.config.access import is_loopback
from azq.parts.volunteers.standing import HandOuts

KNOWN = 100_000  # contributors and addresses that are remembered
BYTES_EACH, BYTES_ADDRESS = 2**24, 2**26  # of finished games that wait
BYTES_SHARE = 8  # the part of the machine's memory that all of them may take

Keys = tuple[str, ...]


def keys_of(contributor: str, address: str) -> Keys:
    """Under what a tab's games are counted; loopback is this machine, or a proxy that `gateway.proxies` does not name, and nobody's own."""
    return (contributor, f"@{address}") if address and not is_loopback(address) else (contributor,)


class Handing:
    """Counts of one gateway, over all of its runs."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, HandOuts] = OrderedDict()
        self._fresh: dict[str, HandOuts] = {}

    def learn(self, key: str, hands: HandOuts) -> None:
        """What was kept of a key, unless more is known of it here."""
        self._known.setdefault(key, hands)
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def note(self, keys: Keys, what: HandOuts) -> None:
        """Something was handed, brought or dropped."""
        for key in keys:
            self.learn(key, HandOuts())
            self._known[key] = self._known[key].plus(what)
            self._fresh[key] = self._fresh.get(key, HandOuts()).plus(what)

    def most(self, keys: Keys, wanted: int) -> int:
        """How many of the games that it wants somebody gets at once."""
        return min((self._known[key].most(wanted) for key in keys if key in self._known), default=wanted)

    def take_fresh(self) -> Mapping[str, HandOuts]:
        """What was noted since this was last asked."""
        fresh, self._fresh = self._fresh, {}
        return fresh


class Stock:
    """Bytes of finished games that wait at one gateway, by whose they are: `most` over all."""

    def __init__(self, most: int = 0) -> None:
        self._most = most or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // BYTES_SHARE
        self._held: dict[Hashable, tuple[Keys, int]] = {}
        self.bytes: Counter[str] = Counter()  # by key; of all under the empty one

    def put(self, name: Hashable, keys: Keys, size: int) -> bool:
        """Whether there is room for a game, which is held from now on; one that is held already stays."""
        if name in self._held:
            return True
        if any(self.bytes[key] + size > most for key, most in self._bounds(keys)):
            return False
        self._held[name] = keys, size
        self._add(keys, size)
        return True

    def drop(self, name: Hashable) -> None:
        """A game is not held any more."""
        if (held := self._held.pop(name, None)) is not None:
            self._add(held[0], -held[1])

    def _add(self, keys: Keys, size: int) -> None:
        for key in (*keys, ""):
            self.bytes[key] += size
            if not self.bytes[key]:
                del self.bytes[key]

    def _bounds(self, keys: Keys) -> list[tuple[str, int]]:
        return [("", self._most), *((key, BYTES_ADDRESS if key.startswith("@") else BYTES_EACH) for key in keys)]


@dataclass(frozen=True, slots=True)
class GatewayCounts:
    """What a gateway counts over all of its runs."""

    games: Counter[str] = field(default_factory=Counter)  # accepted, refused, late, duplicate; simulations
    handing: Handing = field(default_factory=Handing)
    stock: Stock = field(default_factory=Stock)
