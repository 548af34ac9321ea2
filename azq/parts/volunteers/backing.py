"""What a gateway works with: who knows its contributors, who decides that their games count, whence tabs have their networks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from azq.config import SearchConfig
from azq.ledger import Ledger
from azq.parts.volunteers.models import Networks
from azq.parts.volunteers.standing import HandOuts
from azq.parts.volunteers.tickets import NO_TERMS, Terms
from azq.replay.samples import count_samples
from azq.wire.messages import GameRecord, RunRecord, SampleEvent
from azq.wire.tabs import Refused

NO_HANDS = HandOuts()


@dataclass(frozen=True, slots=True)
class Volunteer:
    """A contributor as a gateway knows him."""

    contributor: str
    token: str
    name: str = ""
    problem: str = ""  # why he is not called what he wants to be
    hands: HandOuts = NO_HANDS
    address_hands: HandOuts = NO_HANDS  # of all who came from where he comes from, for a day


class Guests(Protocol):
    """Who may contribute, and what they did. Each call may take a while and raise `BrokerError`; safe to share between threads."""

    def welcome(self, token: str, invite: str, address: str, device: str, name: str = "") -> Volunteer | Refused:
        """The contributor of a token, a new one without, or why he may not; called by `name` from now on where there is one."""
        ...

    def closed(self) -> str:
        """Why nobody may contribute now; empty where they may."""
        ...

    def credit(self, events: Sequence[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        """Games that were committed; the totals of their contributors with these among them."""
        ...

    def note(self, hands: Mapping[str, HandOuts]) -> None:
        """What contributors, and addresses with an @ before them, did with games since the last note."""
        ...

    def forget(self, present: Collection[str]) -> int:
        """Forgets devices of whom no game counts a day after they came, but for those present; returns how many."""
        ...

    def figures(self, contributors: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Games and samples of some, ever."""
        ...

    def name(self, contributor: str) -> str:
        """What a contributor wants to be called."""
        ...

    def totals(self) -> Mapping[str, Mapping[str, int]]:
        """Games, samples and contributors of all, `ever` and in the last `month` and `day`."""
        ...

    def leaderboard(self) -> list[dict[str, object]]:
        """Names and devices with their games and samples, the best first; nothing else of anybody."""
        ...


@dataclass(frozen=True, slots=True)
class Returned:
    """A finished game as a contributor brought it; `handed` is what he was given to play on from."""

    record: GameRecord
    handed: GameRecord
    spent_ms: int = 0
    terms: Terms = NO_TERMS  # of his ticket


@dataclass(frozen=True, slots=True)
class MatchOrder:
    """What else than its search makes the games of a match: its seed, and the versions of the first player and the second."""

    seed: int
    versions: tuple[int, int]


@dataclass(frozen=True, slots=True)
class GamesBatch:
    """Finished games of one contributor, each once, to be accepted or refused."""

    run: RunRecord
    search: SearchConfig  # that tabs were told
    contributor: str
    games: tuple[Returned, ...]
    match: MatchOrder | None = None  # that they are of


@dataclass(frozen=True, slots=True)
class GamesVerdict:
    """What becomes of a batch: each of its games is in exactly one of the two."""

    returns: Mapping[int, tuple[float, ...]] = field(default_factory=dict)  # by uid, of the games that count; computed, not believed
    refused: Mapping[int, str] = field(default_factory=dict)  # uid -> why


class Judge(Protocol):
    """Decides about batches, one at a time; may take seconds, in a thread that has nothing else to do."""

    def batch_games(self, contributor: str) -> int:
        """How many of a contributor's finished games are judged together, at least one; answers at once."""
        ...

    def judge(self, batch: GamesBatch) -> GamesVerdict:
        """The verdict. Raises `AzqError` where there can be none now; the batch is judged again later."""
        ...


def samples_in(record: GameRecord) -> int:
    """Positions of a finished game that may be learned from."""
    return count_samples(SampleEvent(record, (), "", 0))


@dataclass(frozen=True, slots=True)
class Backing:
    """What a gateway works with."""

    ledger: Ledger
    guests: Guests
    judge: Judge
    networks: Networks
    secret: bytes
