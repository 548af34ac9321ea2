"""The seam between a gateway and whatever decides that a contributor's games count; its double asks the rules alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from azq import games
from azq.config import RunConfig, SearchConfig
from azq.errors import IllegalActionError, WireError
from azq.games import Game
from azq.ledger.records import sections_of
from azq.replay.samples import count_samples
from azq.replay.samples import judge as by_the_rules
from azq.wire.arrays import arrays_of
from azq.wire.messages import GameRecord, RunRecord, SampleEvent

WORKER_PREFIX = "browser:"  # of who made a sample, before the contributor


@dataclass(frozen=True, slots=True)
class Returned:
    """A finished game as a contributor brought it; `handed` is what he was given to play on from."""

    record: GameRecord
    handed: GameRecord
    spent_ms: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Finished games of one contributor, each once, to be accepted or refused."""

    run: RunRecord
    search: SearchConfig  # that tabs were told
    contributor: str
    games: tuple[Returned, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a batch: each of its games is in exactly one of the two."""

    returns: Mapping[int, tuple[float, ...]] = field(default_factory=dict)  # by uid, of the games that count; computed, not believed
    refused: Mapping[int, str] = field(default_factory=dict)  # uid -> why


class Judge(Protocol):
    """Decides about batches, one at a time; may take seconds, in a thread that has nothing else to do."""

    def batch_games(self, contributor: str) -> int:
        """How many of a contributor's finished games are judged together, at least one; answers at once."""
        ...

    def judge(self, batch: Batch) -> Verdict:
        """The verdict. Raises `AzqError` where there can be none now; the batch is judged again later."""
        ...


class RulesJudge:
    """Believes every game that the rules allow."""

    def __init__(self, load: Callable[[RunConfig], Game] = lambda run: games.load(run.game, **run.params), batch_games: int = 1) -> None:
        self._load = load
        self._batch_games = batch_games

    def batch_games(self, contributor: str) -> int:
        return self._batch_games

    def judge(self, batch: Batch) -> Verdict:
        game = self._load(sections_of(batch.run).run)
        return played_out(game, batch)


def played_out(game: Game, batch: Batch) -> Verdict:
    """The games of a batch that go on from what was handed out and end by the rules, with their returns. Pure."""
    events, refused = [], {}
    for each in batch.games:
        try:
            events.append(SampleEvent(each.record, _returns(game, each), batch.contributor, 0))
        except (WireError, IllegalActionError) as error:
            refused[each.record.uid] = str(error)
    judged = by_the_rules(game, events, 0.0)
    refused |= judged.refused
    return Verdict({event.record.uid: event.returns for event in events if event.record.uid not in refused}, refused)


def _returns(game: Game, game_back: Returned) -> tuple[float, ...]:
    record, uid = game_back.record, game_back.record.uid
    arrays = arrays_of(record, game.num_distinct_actions(), game.value_size(), f"game {uid}")
    for name in record.__struct_fields__[1:]:
        if not getattr(record, name).startswith(getattr(game_back.handed, name)):
            raise WireError(f"game {uid} does not go on from what was handed out")
    state = game.new_initial_state()
    for action in arrays["actions"].tolist():
        if state.is_terminal() or action not in state.legal_actions():
            raise IllegalActionError(f"game {uid} has the action {action} where the rules forbid it")
        state.apply_action(action)
    if not state.is_terminal():
        raise WireError(f"game {uid} is not finished")
    return tuple(np.asarray(state.returns(), np.float32).tolist())


def samples_in(record: GameRecord) -> int:
    """Positions of a finished game that may be learned from."""
    return count_samples(SampleEvent(record, (), "", 0))
