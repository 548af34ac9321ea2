"""The seam between a gateway and whatever decides that a contributor's games count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from azq.config import SearchConfig
from azq.replay.samples import count_samples
from azq.wire.messages import GameRecord, RunRecord, SampleEvent


@dataclass(frozen=True, slots=True)
class Returned:
    """A finished game as a contributor brought it; `handed` is what he was given to play on from."""

    record: GameRecord
    handed: GameRecord
    spent_ms: int = 0


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
