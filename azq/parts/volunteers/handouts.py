"""Games as they are handed to contributors and come back: tickets, where each game is, what contributors do with them. Pure.

A ticket names the only way in which its game is to be searched, and with it comes luck that tabs cannot foresee: all of the game follows.
Counts and bounds have keys: contributors, and addresses with an @ before them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from azq.config import SearchConfig
from azq.config.access import is_loopback
from azq.parts.volunteers.reputation import HandOuts
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, RunRecord
from azq.wire.tabs import TabGame, is_match

REMEMBERED = 100_000  # contributors and addresses
BYTES_EACH, BYTES_ADDRESS = 2**24, 2**26  # of finished games that wait
BYTES_SHARE = 8  # the part of the machine's memory that all of them may take
MAC_BYTES = 16
LUCK_BITS = 52  # of the numbers that browsers hold
_LAYOUT = struct.Struct("<IH8s")  # version, budget, digest of the record

Keys = tuple[str, ...]


def keys_of(contributor: str, address: str) -> Keys:
    """The keys of a tab's games; loopback, this machine or a proxy missing in `gateway.proxies`, is not counted as an address."""
    return (contributor, f"@{address}") if address and not is_loopback(address) else (contributor,)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a game is to be searched: with this version of the weights and so many simulations, every ply of it."""

    version: int = 0
    budget: int = 0


NO_TERMS = Terms()  # of a match's games, whose terms are the match's


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket that was issued to the contributor who shows it."""

    terms: Terms
    moved: bytes  # digest of the record that the game was handed out with

    def fits(self, record: GameRecord) -> bool:
        """Whether the game still is where it was handed out."""
        return self.moved == _digest(record)


class Tickets:
    """Those of one run; `secret` is the control plane's, `mark` the run's own."""

    def __init__(self, secret: bytes, mark: bytes) -> None:
        self._key = hmac.digest(secret, mark, "sha256")

    def issue(self, uid: int, contributor: str, record: GameRecord, terms: Terms) -> bytes:
        """The ticket of a game that a contributor gets."""
        payload = _LAYOUT.pack(terms.version, terms.budget, _digest(record))
        return payload + self._mac(uid, contributor, payload)

    def read(self, ticket: bytes, uid: int, contributor: str) -> Ticket | None:
        """The ticket; None where it was not issued for this game and contributor."""
        payload, mac = ticket[: _LAYOUT.size], ticket[_LAYOUT.size :]
        if not hmac.compare_digest(mac, self._mac(uid, contributor, payload)):
            return None
        version, budget, moved = _LAYOUT.unpack(payload)
        return Ticket(Terms(version, budget), moved)

    def luck(self, record: GameRecord) -> int:
        """The number by which a game's random numbers are drawn, the same at every hand-out; 0, its own, where it was begun elsewhere."""
        if record.actions or is_match(record.uid):
            return 0
        return 1 + int.from_bytes(hmac.digest(self._key, b"luck %d" % record.uid, "sha256")[:8]) % ((1 << LUCK_BITS) - 1)

    def _mac(self, uid: int, contributor: str, payload: bytes) -> bytes:
        return hmac.digest(self._key, b" ".join((str(uid).encode(), contributor.encode(), payload)), "sha256")[:MAC_BYTES]


def _digest(record: GameRecord) -> bytes:
    return hashlib.sha256(encode(record)).digest()[:8] if record.actions else bytes(8)


class Place(StrEnum):
    """Where a game under a lease is."""

    WAITING = "waiting"  # in no tab
    PLAYING = "playing"
    RETURNED = "returned"  # finished, waits for its verdict
    JUDGED = "judged"  # the verdict is being found
    ACCEPTED = "accepted"  # waits to be committed


@dataclass(slots=True)
class HeldGame:
    """A game under a lease."""

    lease: str  # the job's id
    record: GameRecord  # as the ledger has it, and as it is handed out
    place: Place = Place.WAITING
    contributor: str = ""
    keys: Keys = ()  # under which its hand-out is counted
    tab: int = 0  # where answers go
    brought: TabGame | None = None
    terms: Terms = NO_TERMS  # of its first hand-out, that later ones keep; of the ticket that it was brought with
    missed_by: Keys = ()  # who dropped it on these terms
    returns: tuple[float, ...] = ()
    since_s: float = 0.0  # at this place


@dataclass(slots=True)
class GameClaim:
    """A game that a contributor plays, or has finished, without a lease."""

    tab: int
    since_s: float
    brought: TabGame | None = None


@dataclass(slots=True)
class Tab:
    """A connected tab."""

    contributor: str
    heard_s: float
    keys: Keys
    room: int = 0  # games that it plays at once
    match_room: int = 0  # games of matches, besides
    slow: bool = False  # it held one for too long, and gets no more
    plays: set[int] = field(default_factory=set)  # with a lease or without


@dataclass(frozen=True, slots=True)
class Returned:
    """A finished game as a contributor brought it; `handed` is the record that it was handed out with."""

    record: GameRecord
    handed: GameRecord
    terms: Terms = NO_TERMS  # of its ticket
    luck: int = 0  # that it was handed out with; 0: that of its number


@dataclass(frozen=True, slots=True)
class MatchOrder:
    """What makes the games of a match besides its search: its seed, and the versions of the first player and the second."""

    seed: int
    versions: tuple[int, int]


@dataclass(frozen=True, slots=True)
class GamesBatch:
    """Finished games of one contributor, each once, to be accepted or refused."""

    run: RunRecord
    search: SearchConfig  # as tabs had it
    contributor: str
    games: tuple[Returned, ...]
    match: MatchOrder | None = None  # of a match's games


@dataclass(frozen=True, slots=True)
class GamesVerdict:
    """What becomes of a batch; a game in neither is judged again."""

    returns: Mapping[int, tuple[float, ...]] = field(default_factory=dict)  # by uid, of the games that count; computed, not believed
    refused: Mapping[int, str] = field(default_factory=dict)  # uid -> why


class HandOutCounts:
    """Hand-outs of one gateway, over all of its runs."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[str, HandOuts] = OrderedDict()
        self._fresh: dict[str, HandOuts] = {}

    def learn(self, key: str, hands: HandOuts) -> None:
        """Takes the stored counts of a key that has none here."""
        self._by_key.setdefault(key, hands)
        while len(self._by_key) > REMEMBERED:
            self._by_key.popitem(last=False)

    def add(self, keys: Keys, games: HandOuts) -> None:
        """Counts games that were handed, brought or dropped."""
        for key in keys:
            self.learn(key, HandOuts())
            self._by_key[key] = self._by_key[key].plus(games)
            self._fresh[key] = self._fresh.get(key, HandOuts()).plus(games)

    def most(self, keys: Keys, wanted: int) -> int:
        """How many of the wanted games are handed out at once."""
        return min((self._by_key[key].most(wanted) for key in keys if key in self._by_key), default=wanted)

    def take_fresh(self) -> Mapping[str, HandOuts]:
        """What was counted since the last call."""
        fresh, self._fresh = self._fresh, {}
        return fresh


class Stock:
    """Bytes of finished games that wait at one gateway, by key: `most` over all."""

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
    hand_outs: HandOutCounts = field(default_factory=HandOutCounts)
    stock: Stock = field(default_factory=Stock)
