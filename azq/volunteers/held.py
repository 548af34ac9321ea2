"""What a gateway holds of one run: games under a lease, claims on others, and the tabs that play them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from azq.volunteers.handing import Keys
from azq.volunteers.tickets import NO_TERMS, Terms
from azq.wire.messages import GameRecord
from azq.wire.tabs import TabGame


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
