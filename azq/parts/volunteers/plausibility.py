"""What no honest tab sends, seen without a network: broken rules, the luck of another game, figures that no search makes. Pure.

Letters: T plies, A actions, V values.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
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
    returns: tuple[float, ...]  # by the rules
    own: tuple[ChosenPly, ...]  # the contributor's own searched plies


def check(order: SearchOrder, returned: Returned) -> Replayed:
    """The game, replayed by the core. Raises `Implausible` with the first fault."""
    game, record = order.game, returned.record
    try:
        arrays = unpack_record(record, game.num_distinct_actions(), game.value_size())
        given = _given(game, arrays, returned.handed)
        if order.players:
            arrays["weight_versions"] = _versions_by_mover(game, order.players, record.uid, arrays["actions"])
        own = np.flatnonzero(_searched(game, arrays)[given:]) + given
        returns = _returns(order, returned, arrays["actions"], given, own)
        samples_of(game, [SampleEvent(record, returns, "", 0)])  # which checks actions, policies and root values
    except (WireError, IllegalActionError) as error:
        raise Implausible(str(error)) from None
    budget = order.search.num_simulations if order.players else returned.terms.budget
    if not order.players:
        _check_version(order, arrays["weight_versions"][own], returned.terms.version)
    return Replayed(record.uid, returns, tuple(ChosenPly(record.uid, arrays, int(ply), budget, returned.luck) for ply in own))


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


def _returns(order: SearchOrder, game: Returned, actions: NDArray[np.uint16], given: int, searched: NDArray[np.intp]) -> tuple[float, ...]:
    """The result. Dice, cards and random openings follow from the game's luck: they are dealt again around the contributor's own plies.

    What was handed out is as it was handed out; `searched` are the places of those plies.
    """
    uid, luck = game.record.uid, game.luck or luck_of(game.record.uid)
    search = _core.Search(order.game, order.config(1), num_slots=1, seed=order.seed, autoplay=True)
    search.start(0, luck, actions[:given])
    begun = len(search.record(0).actions)  # with what the game begins with
    with suppress(IllegalActionError):  # what was dealt is not what the next of them answers
        for ply in searched.tolist():
            search.play(0, int(actions[ply]))
    dealt = search.record(0).actions
    chosen = np.flatnonzero(order.game.replay(actions)[2][begun:] >= 0) + begun  # by players, after the opening
    least = min(len(dealt), len(actions))
    others = [*np.flatnonzero(dealt[:least] != actions[:least]), *np.setxor1d(searched, chosen), *[least] * (len(dealt) != len(actions))]
    if others:
        raise Implausible(f"its dice, cards or opening from ply {min(others)} on are not those of game {uid}")
    if not search.finished_slots():
        raise Implausible(f"it is not over after {len(actions)} plies")
    return tuple(search.record(0).returns.tolist())
