"""A match that tabs play: its games as they are handed out, the message about it, and the result of those that came back. Pure.

It is dealt as the arena deals: groups of games with the same opening, the first player once in every seat. Each game follows from its
opening, the match's seed and two versions, so every tab brings back the same one, and a match is over with all of its games or not at
all: tabs cannot choose which count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from azq.arena import match as arena
from azq.config import RunSections, SearchConfig
from azq.errors import ConfigError, WireError
from azq.games import Game
from azq.parts.volunteers.handouts import MatchOrder
from azq.ratings.elo import version_of
from azq.search.search import exploring_values, greedy
from azq.wire.arrays import unsearched_record
from azq.wire.codec import decode, encode
from azq.wire.messages import GameRecord, Job, MatchResult, MatchSpec, SampleEvent
from azq.wire.tabs import GROUP_UIDS, MATCH_UIDS, EvalGames, Handed, ModelUpdate

PLACE_BITS, JOB_BITS = 26, 26  # of a game's number, below that which all have: its place in the match, above it the job's number


@dataclass(frozen=True, slots=True)
class TabMatch:
    """A match as tabs play it; `games` are those of the arena after their openings, by number."""

    game: Game
    spec: MatchSpec
    order: MatchOrder
    search: SearchConfig
    games: dict[int, arena.MatchGame]

    @property
    def records(self) -> list[GameRecord]:
        """The games as they are handed out."""
        sizes = self.game.num_distinct_actions(), self.game.value_size()
        return [unsearched_record(uid, game.history, *sizes) for uid, game in self.games.items()]

    def message(self, run: str, networks: tuple[ModelUpdate, ...], handed: Sequence[tuple[GameRecord, bytes]]) -> EvalGames:
        """The message with which a tab gets games of it."""
        return EvalGames(run, str(self.order.seed), exploring_values(self.search), networks, in_hand(handed))

    def result(self, events: Sequence[SampleEvent]) -> MatchResult:
        """The result of all games, which the rules allow, as the core plays them again."""
        ended = [self._ended(uid, actions) for uid, actions in sorted((event.record.uid, event.record.actions) for event in events)]
        first, second = (f"weights:{version}" for version in self.order.versions)
        return arena.result_of(self.spec, self.game, first, second, ended)

    def _ended(self, uid: int, actions: bytes) -> arena.MatchGame:
        opened = self.games[uid]
        ended = replace(opened, state=opened.state.clone(), history=list(opened.history))
        for action in np.frombuffer(actions, "<u2")[len(opened.history) :].tolist():
            ended.play(action)
        return ended


def deal_match(job: Job, sections: RunSections, game: Game, latest: int) -> TabMatch:
    """The match of a job. Raises `WireError` where it is none, `ConfigError` for players that are no weights or an opening too long."""
    spec = decode(job.payload, MatchSpec)
    versions = version_played(spec.first, latest), version_played(spec.second, latest)
    search = greedy(sections.search, spec.num_simulations).model_copy(update={"reuse_subtree": False, "batch_root": False, "schedule": ()})
    base = MATCH_UIDS + (int(job.job_id.rpartition(":")[2]) % 2**JOB_BITS << PLACE_BITS)
    group = arena.group_size(game.num_players())
    dealt = enumerate(arena.deal(game, spec))
    games = {base + place // group * GROUP_UIDS + opened.first_seat: opened for place, opened in dealt}
    return TabMatch(game, spec, MatchOrder(spec.seed, versions), search, games)


def versions_named(job: Job) -> list[int]:
    """The versions that a match is between, as far as its job names them; none of a job that holds no match."""
    with suppress(WireError):
        spec = decode(job.payload, MatchSpec)
        return [version for player in (spec.first, spec.second) if (version := version_of(player)) is not None]
    return []


def in_hand(handed: Iterable[tuple[GameRecord, bytes]], luck: Callable[[GameRecord], int] = lambda record: 0) -> tuple[Handed, ...]:
    """Games with their tickets, as a message holds them."""
    return tuple(Handed(record.uid, ticket, encode(record) if record.actions else b"", luck(record)) for record, ticket in handed)


def version_played(player: str, latest: int) -> int:
    """The version of a player that tabs can be. Raises `ConfigError` for every other one."""
    version = latest if player == "latest" else version_of(player)
    if version is None:
        raise ConfigError(f"tabs play weights only, not {player}; give such matches another tag than browser")
    return version
