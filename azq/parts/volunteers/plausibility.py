"""What no honest tab sends, seen without a network: broken rules, the luck of another game, figures that no search makes, copies. Pure.

Letters: T plies, A actions, V values.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.config import RunSections, SearchConfig
from azq.errors import IllegalActionError, WireError
from azq.parts.volunteers.handouts import MatchOrder, Returned
from azq.replay.samples import samples_of
from azq.search.recomputation import Arrays, ChosenPly
from azq.search.search import exploring
from azq.wire.arrays import unpack_record
from azq.wire.messages import GameRecord, SampleEvent
from azq.wire.tabs import GROUP_UIDS, luck_of

MOST_SIMULATIONS_PER_S = 3e6  # of one game; a core makes some 10^6 without a network
MOST_RECENT = 1 << 17  # games whose moves are remembered
UNLIKELY = 1e-9  # chance below which a game that was there before is a copy
QUALITIES = (25, 50, 75, 100)  # percent of the simulations that are ordered, from which a tab may choose
EXACT = frozenset({-1.0, 0.0, 1.0})  # root values of solved positions, whose search ends early


def tab_budget(ordered: int, quality: int) -> int:
    """Simulations of a ply at so many percent."""
    return max(1, ordered * quality // 100)


class Implausible(Exception):
    """A game that no honest tab sends; the message says why."""


class Outdated(Implausible):
    """A game that took so long that the weights of its hand-out are not kept any more."""


@dataclass(frozen=True, slots=True)
class SearchOrder:
    """How the tabs of a run are to make its games."""

    game: _core.Game
    seed: int
    search: SearchConfig  # but for its budget
    random_opening_plies: int
    versions: Collection[int]  # of weights that games may be played with
    players: tuple[int, int] | None = None  # in a match: those of the first player and the second, which has all other seats

    @classmethod
    def of(cls, game: _core.Game, sections: RunSections, search: SearchConfig, versions: Collection[int]) -> SearchOrder:
        """The order that follows from a run's settings and from the search that its tabs got last."""
        ordered = search.model_copy(update={"reuse_subtree": False, "schedule": ()})
        return cls(game, sections.run.seed, ordered, sections.selfplay.random_opening_plies, versions)

    @classmethod
    def of_match(cls, game: _core.Game, search: SearchConfig, match: MatchOrder) -> SearchOrder:
        """The order of a match's games."""
        return cls(game, match.seed, search, 0, match.versions, match.versions)

    def config(self, budget: int) -> _core.SearchConfig:
        """The search of the core at so many simulations a ply."""
        search = self.search.model_copy(update={"num_simulations": budget})
        return exploring(search, random_opening_plies=self.random_opening_plies)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A game that keeps the rules and whose figures may be a search's."""

    uid: int
    actions: NDArray[np.uint16]
    returns: tuple[float, ...]  # by the rules
    own: tuple[ChosenPly, ...]  # the contributor's own searched plies
    log_chance: float  # of its moves, as its policies and dice have it


def check(order: SearchOrder, returned: Returned) -> Replayed:
    """The game, replayed by the core. Raises `Implausible` with the first fault."""
    game, record = order.game, returned.record
    try:
        arrays = unpack_record(record, game.num_distinct_actions(), game.value_size())
        given = _given(game, arrays, returned.handed)
        returns = _returns(order, record.uid, arrays)
        if order.players:
            arrays["weight_versions"] = _versions_by_mover(game, order.players, record.uid, arrays["actions"])
        samples_of(game, [SampleEvent(record, returns, "", 0)])  # which checks actions, policies and root values
    except (WireError, IllegalActionError) as error:
        raise Implausible(str(error)) from None
    searched = _searched(game, arrays)
    own = np.flatnonzero(searched[given:]) + given
    _check_luck(order, record.uid, arrays["actions"], given, own)
    budget = order.search.num_simulations if order.players else returned.terms.budget
    if not order.players:
        _check_version(order, arrays["weight_versions"][own], returned.terms.version)
    _check_spending(arrays, own, budget, returned.spent_ms)
    plies = tuple(ChosenPly(record.uid, arrays, int(ply), budget) for ply in own)
    return Replayed(record.uid, arrays["actions"], returns, plies, _log_chance(game, arrays, searched))


def _given(game: _core.Game, arrays: Arrays, handed: GameRecord) -> int:
    """The number of plies that the game was handed out with, which must be unchanged."""
    given = unpack_record(handed, game.num_distinct_actions(), game.value_size())
    if not all(arrays[name].tobytes().startswith(array.tobytes()) for name, array in given.items()):
        raise Implausible("it does not go on from what was handed out")
    return len(given["actions"])


def _versions_by_mover(game: _core.Game, players: tuple[int, int], uid: int, actions: NDArray[np.uint16]) -> NDArray[np.uint32]:
    """The weights versions that a match's plies had to be searched with (T,); chance's moves aside."""
    first, second = players
    movers = game.replay(actions)[2]
    return np.where(movers == uid % GROUP_UIDS, first, second).astype(np.uint32)


def _returns(order: SearchOrder, uid: int, arrays: Arrays) -> tuple[float, ...]:
    search = _core.Search(order.game, order.config(1), num_slots=1, seed=order.seed, autoplay=False)
    search.start(0, luck_of(uid), arrays["actions"])
    if not search.finished_slots():
        raise Implausible(f"it is not over after {len(arrays['actions'])} plies")
    return tuple(search.record(0).returns.tolist())


def _searched(game: _core.Game, arrays: Arrays) -> NDArray[np.bool_]:
    """Plies (T,) with a search's figures; those of a game that a safety cap ended have some, though they are no targets."""
    searched, counted = arrays["policies"].any(axis=1), arrays["simulations"] > 0
    truncated = bool(game.targets(arrays["actions"])["truncated"])
    if counted.any() if truncated else not np.array_equal(searched, counted):
        raise Implausible("it has targets where nothing was searched, or none where something was")
    if arrays["root_values"][~searched].any():
        raise Implausible("it has a root value where nothing was searched")
    return np.asarray(searched)


def _check_version(order: SearchOrder, versions: NDArray[np.uint32], handed: int) -> None:
    other = versions[versions != handed]
    if len(other):
        raise Implausible(f"a ply is said to be of weights version {other[0]}, the game was handed out for {handed}")
    if len(versions) and handed not in order.versions:
        raise Outdated(f"weights version {handed} is too old by now")


def _check_spending(arrays: Arrays, own: NDArray[np.intp], budget: int, spent_ms: int) -> None:
    """So many simulations as were ordered; fewer only where a search ends early, 0 where a safety cap ended the game."""
    for ply in own.tolist():
        spent = int(arrays["simulations"][ply])
        ended_early = EXACT.issuperset(arrays["root_values"][ply].tolist()) or np.count_nonzero(arrays["policies"][ply]) == 1
        if spent > budget or (0 < spent < budget and not ended_early):
            raise Implausible(f"{spent} simulations were spent on a ply, {budget} were ordered")
    simulations = int(arrays["simulations"][own].sum(dtype=np.int64))
    if spent_ms and simulations > MOST_SIMULATIONS_PER_S * spent_ms / 1000:
        raise Implausible(f"{simulations} simulations in {spent_ms} ms are faster than any machine")


def _check_luck(order: SearchOrder, uid: int, actions: NDArray[np.uint16], given: int, searched: NDArray[np.intp]) -> None:
    """Dice, cards and random openings follow from the game's number: each run of plies without a search is dealt again.

    What was handed out is as it was handed out; `searched` are the places of the contributor's own plies.
    """
    search = _core.Search(order.game, order.config(1), num_slots=1, seed=order.seed, autoplay=True)
    ends = [*searched.tolist(), len(actions)]
    for first, last in zip([given, *(end + 1 for end in ends)], ends, strict=False):
        search.start(0, luck_of(uid), actions[:first])
        if not np.array_equal(search.record(0).actions, actions[:last]):
            raise Implausible(f"its dice, cards or opening from ply {first} on are not those of game {uid}")
        search.clear(0)


def _log_chance(game: _core.Game, arrays: Arrays, searched: NDArray[np.bool_]) -> float:
    """Logarithm of the chance that another game has the same moves."""
    state, total = game.new_initial_state(), 0.0
    for ply, action in enumerate(arrays["actions"].tolist()):
        if searched[ply]:
            total += math.log(max(float(arrays["policies"][ply, action]), 1e-4))
        elif state.is_chance_node():
            total += math.log(dict(state.chance_outcomes())[action])
        else:
            total -= math.log(len(state.legal_actions()))
        state.apply_action(action)
    return total


class RecentGames:
    """Moves of the newest games, so that a copy is noticed, whichever tab sends it."""

    def __init__(self, most: int = MOST_RECENT) -> None:
        self._games: OrderedDict[bytes, int] = OrderedDict()
        self._most = most

    def copied(self, replayed: Replayed) -> bool:
        """Whether the same moves were there before, under another number, though that is all but impossible."""
        first = self._games.get(_name_of(replayed), replayed.uid)
        return first != replayed.uid and len(self._games) * math.exp(replayed.log_chance) < UNLIKELY

    def add(self, replayed: Replayed) -> None:
        """Remembers a game; the oldest are forgotten."""
        self._games.setdefault(_name_of(replayed), replayed.uid)
        if len(self._games) > self._most:
            self._games.popitem(last=False)


def _name_of(replayed: Replayed) -> bytes:
    return hashlib.blake2b(replayed.actions.tobytes(), digest_size=16).digest()
