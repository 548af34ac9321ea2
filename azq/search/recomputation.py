"""Searches plies of finished games again, and says how far what was recorded is from what comes out.

A ply follows from the actions before it, the run's seed, the game's luck, its budget, the tree that was kept from the ply before and
one version of the weights, or two where new ones came meanwhile: to the last bit with a network in whole numbers. In floats it may be
computed in another order, which moves a logit now and then to the next float16. Letters: L leaves, A actions, T plies, V values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.search.search import Record, Result, Search, leaves_at_once, make_search
from azq.wire.tabs import luck_of

SLOTS = 256  # plies that are searched in step
Outputs = tuple[NDArray[np.float16], NDArray[np.float16]]  # logits (L, A), values (L, V)
Evaluate = Callable[[int, NDArray[np.uint8]], Outputs]  # a weight version's evaluations of packed observations
Config = Callable[[int], _core.SearchConfig]  # of a search with so many simulations
Arrays = Mapping[str, NDArray[Any]]  # of a record, as `azq.wire.arrays.arrays_of` names them
#: In floats a ply differs where its action or its simulations do, or where its policy (total variation) or its value does by more.
MOST_POLICY, MOST_VALUE = 0.002, 0.001  # by which 1 to 6 of 185,542 honest ones did (docs/research.md)


@dataclass(frozen=True, slots=True)
class ChosenPly:
    """One searched ply of a finished game."""

    uid: int
    game: Arrays
    ply: int
    budget: int  # simulations that were ordered
    luck: int = 0  # by which its random numbers were drawn; 0: that of its number

    @property
    def version(self) -> int:
        """The weights that it says it was searched with."""
        return int(self.game["weight_versions"][self.ply])


@dataclass(frozen=True, slots=True)
class Swap:
    """New weights came while a ply was searched."""

    steps: int  # that its search made with the old ones
    version: int  # of these


@dataclass(frozen=True, slots=True)
class Stretch:
    """Plies of a finished game that are searched one after the other, from the actions before the first one on."""

    uid: int
    game: Arrays
    first: int
    last: int
    swaps: Mapping[int, Swap] = field(default_factory=dict)  # by ply
    luck: int = 0  # as `ChosenPly` has it


@dataclass(frozen=True, slots=True)
class Searched:
    """What the search of a ply gives now."""

    ply: int
    result: Result
    policy: NDArray[np.float16]  # (A,), this and the next as a record would have them
    root_values: NDArray[np.float32]  # (V,)
    simulations: int
    steps: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What a ply says against what its search gives; all 0 where they are equal."""

    uid: int
    ply: int
    action: bool  # another one
    simulations: int
    policy: float  # total variation
    value: float  # the largest of V


def differs(difference: Difference, *, exact: bool = False) -> bool:
    """Whether a ply is not `exact`ly what its search gives, or farther from it than another order of computing the network explains."""
    if exact:
        return distance(difference) != (False, 0, 0.0, 0.0)
    return difference.action or difference.simulations > 0 or difference.policy > MOST_POLICY or difference.value > MOST_VALUE


def distance(difference: Difference) -> tuple[bool, int, float, float]:
    """How far a ply is from its search, for comparison."""
    return difference.action, difference.simulations, difference.policy, difference.value


def recompute(game: _core.Game, seed: int, config: Config, chosen: Iterable[ChosenPly], evaluate: Evaluate) -> list[Difference]:
    """Searches each ply again with its weights and budget. Raises what `evaluate` raises."""
    differences: list[Difference] = []
    for (_, budget), group in groupby(sorted(chosen, key=_alike), key=_alike):
        plies = list(group)
        for first in range(0, len(plies), SLOTS):
            stretches = [Stretch(ply.uid, ply.game, ply.ply, ply.ply, luck=ply.luck) for ply in plies[first : first + SLOTS]]
            searched = search_again(game, seed, config(budget), stretches, evaluate)
            differences += [difference_of(stretch, ply) for stretch, (ply,) in zip(stretches, searched, strict=True)]
    return differences


def _alike(ply: ChosenPly) -> tuple[int, int]:
    return ply.version, ply.budget


def search_again(
    game: _core.Game,
    seed: int,
    config: _core.SearchConfig,
    stretches: Sequence[Stretch],
    evaluate: Evaluate,
    *,
    merge_symmetries: bool = False,
) -> list[list[Searched]]:
    """What the search of each ply of each stretch gives, all stretches in step; recorded actions are played whatever it chose.

    Plies that were not searched are left out. Raises what `evaluate` raises.
    """
    search = make_search(game, config, num_slots=len(stretches), seed=seed, autoplay=False, merge_symmetries=merge_symmetries)
    walks = [_Walk(search, slot, stretch) for slot, stretch in enumerate(stretches)]
    capacity = len(stretches) * leaves_at_once(config, game)
    packed, slots = np.zeros((capacity, game.packed_size()), np.uint8), np.zeros(capacity, np.int32)
    while (leaves := search.collect(packed, slots)) or search.idle_slots():
        if leaves:
            of_leaves = slots[:leaves].tolist()
            search.apply(*_evaluated(evaluate, [walks[slot].version for slot in of_leaves], packed[:leaves]))
            for slot in set(of_leaves):
                walks[slot].steps += 1
        for slot in search.idle_slots():
            walks[slot].go_on()
    return [walk.plies for walk in walks]


def _evaluated(evaluate: Evaluate, versions: Sequence[int], packed: NDArray[np.uint8]) -> Outputs:
    """Each leaf by its own version, the leaves of one version together."""
    if len(set(versions)) == 1:
        return evaluate(versions[0], packed)
    places = {version: np.flatnonzero(np.equal(versions, version)) for version in sorted(set(versions))}
    parts = [evaluate(version, packed[rows]) for version, rows in places.items()]
    order = np.argsort(np.concatenate(list(places.values())))
    return np.concatenate([logits for logits, _ in parts])[order], np.concatenate([values for _, values in parts])[order]


class _Walk:
    """A slot on its way along a stretch."""

    def __init__(self, search: Search, slot: int, stretch: Stretch) -> None:
        self._search, self._slot, self._stretch = search, slot, stretch
        self._ply, self.steps = stretch.first, 0
        self.plies: list[Searched] = []
        search.start(slot, stretch.luck or luck_of(stretch.uid), stretch.game["actions"][: stretch.first])

    @property
    def version(self) -> int:
        """The weights of the step that is due."""
        swap = self._stretch.swaps.get(self._ply)
        return swap.version if swap and self.steps < swap.steps else int(self._stretch.game["weight_versions"][self._ply])

    def go_on(self) -> None:
        """Takes down what the spent search says, plays what was played, and lets chance have what it had."""
        search, slot, ply, actions = self._search, self._slot, self._ply, self._stretch.game["actions"]
        result = search.result(slot)
        search.play(slot, int(actions[ply]))
        self.plies.append(_searched(ply, result, search.record(slot), self.steps))
        ply += 1
        while ply <= self._stretch.last and search.state(slot).is_chance_node():
            search.play(slot, int(actions[ply]))
            ply += 1
        self._ply, self.steps = ply, 0
        if ply > self._stretch.last:
            search.clear(slot)


def _searched(ply: int, result: Result, record: Record, steps: int) -> Searched:
    return Searched(ply, result, record.policies[-1], record.root_values[-1], int(record.simulations[-1]), steps)


def difference_of(stretch: Stretch, searched: Searched) -> Difference:
    """A recorded ply against what its search gives now."""
    game, ply = stretch.game, searched.ply
    spent = int(game["simulations"][ply])  # 0 in a game that a safety cap ended, which teaches nothing
    return Difference(
        uid=stretch.uid,
        ply=ply,
        action=int(searched.result.action) != int(game["actions"][ply]),
        simulations=abs(searched.simulations - spent) if spent else 0,
        policy=float(np.abs(searched.policy.astype(np.float32) - game["policies"][ply].astype(np.float32)).sum()) / 2,
        value=float(np.abs(searched.root_values - game["root_values"][ply]).max()),
    )
