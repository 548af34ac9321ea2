"""Games under a lease, and their tickets: what a gateway wrote on a game as it handed it out, which only it can read. Pure.

A ticket names the one way in which the game is to be searched, so that nobody chooses among several.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from enum import StrEnum

from azq.parts.volunteers.handing import Keys
from azq.wire.codec import encode
from azq.wire.messages import GameRecord
from azq.wire.tabs import TabGame

_LAYOUT = struct.Struct("<IH8s")  # version, budget, digest of the record
MAC_BYTES = 16


@dataclass(frozen=True, slots=True)
class Terms:
    """How a game is to be searched: with this version of the weights and so many simulations, every ply of it."""

    version: int = 0
    budget: int = 0


NO_TERMS = Terms()  # of a match's games, which are on those of the match


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket that was issued for who shows it."""

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
        said = _LAYOUT.pack(terms.version, terms.budget, _digest(record))
        return said + self._mac(uid, contributor, said)

    def read(self, ticket: bytes, uid: int, contributor: str) -> Ticket | None:
        """What a ticket says; None where it was not issued for this game and contributor."""
        said, mac = ticket[: _LAYOUT.size], ticket[_LAYOUT.size :]
        if not hmac.compare_digest(mac, self._mac(uid, contributor, said)):
            return None
        version, budget, moved = _LAYOUT.unpack(said)
        return Ticket(Terms(version, budget), moved)

    def _mac(self, uid: int, contributor: str, said: bytes) -> bytes:
        return hmac.digest(self._key, b" ".join((str(uid).encode(), contributor.encode(), said)), "sha256")[:MAC_BYTES]


def _digest(record: GameRecord) -> bytes:
    return hashlib.sha256(encode(record)).digest()[:8] if record.actions else bytes(8)


class Place(StrEnum):
    """Where a game under a lease is."""

    WAITING = "waiting"  # nobody plays it
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
    keys: Keys = ()  # of who has it, by which it is counted what he does with it
    tab: int = 0  # where answers go
    brought: TabGame | None = None
    terms: Terms = NO_TERMS  # of the ticket that it was brought with
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
    slow: bool = False  # it kept one for too long, and gets no more
    plays: set[int] = field(default_factory=set)  # with a lease or without
