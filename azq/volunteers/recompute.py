"""Searches chosen plies of finished games again, many at once, and says how far what was recorded is from what comes out.

A browser's ply follows from the actions before it, the run's seed, the game's number and one version of the weights: no subtree is
carried over, nothing is remembered. What is left is that its network is computed in another order, which moves a logit now and then
to the next float16. Letters: L leaves, A actions, T plies, V values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.wire.tabs import luck_of

SLOTS = 256  # plies that are searched in step
Outputs = tuple[NDArray[np.float16], NDArray[np.float16]]  # logits (L, A), values (L, V)
Evaluate = Callable[[int, NDArray[np.uint8]], Outputs]  # a weight version's evaluations of packed observations
Config = Callable[[int], _core.SearchConfig]  # of a search with so many simulations
Arrays = Mapping[str, NDArray[Any]]  # of a record, as `azq.wire.arrays.arrays_of` names them


@dataclass(frozen=True, slots=True)
class ChosenPly:
    """One searched ply of a finished game."""

    uid: int
    game: Arrays
    ply: int
    budgets: tuple[int, ...]  # simulations that may have been ordered; several where its search ended early

    @property
    def version(self) -> int:
        """The weights that it says it was searched with."""
        return int(self.game["weight_versions"][self.ply])


@dataclass(frozen=True, slots=True)
class Difference:
    """What a ply says against what its search gives; all 0 where they are equal."""

    uid: int
    ply: int
    action: bool  # another one
    simulations: int
    policy: float  # total variation
    value: float  # the largest of V


def recompute(game: _core.Game, seed: int, config: Config, chosen: Iterable[ChosenPly], evaluate: Evaluate) -> list[Difference]:
    """Searches each ply with its weights and each budget that it may have had; the likest counts. Raises what `evaluate` raises."""
    found: dict[tuple[int, int], Difference] = {}
    searches = ((ply.version, budget, ply) for ply in chosen for budget in ply.budgets)
    for (version, budget), group in groupby(sorted(searches, key=_alike), key=_alike):
        plies, evaluate_by = [ply for _, _, ply in group], partial(evaluate, version)
        for first in range(0, len(plies), SLOTS):
            for each in _search(game, seed, config(budget), plies[first : first + SLOTS], evaluate_by):
                place = each.uid, each.ply
                found[place] = min(each, found.get(place, each), key=_distance)
    return list(found.values())


def _alike(search: tuple[int, int, ChosenPly]) -> tuple[int, int]:
    return search[:2]


def _distance(difference: Difference) -> tuple[bool, int, float, float]:
    return difference.action, difference.simulations, difference.policy, difference.value


def _search(
    game: _core.Game, seed: int, config: _core.SearchConfig, chosen: Sequence[ChosenPly], evaluate: Callable[[NDArray[np.uint8]], Outputs]
) -> list[Difference]:
    search = _core.Search(game, config, num_slots=len(chosen), seed=seed, autoplay=False)
    for slot, each in enumerate(chosen):
        search.start(slot, luck_of(each.uid), each.game["actions"][: each.ply])
    capacity = len(chosen) * config.leaves_per_step
    packed, slots = np.zeros((capacity, game.packed_size()), np.uint8), np.zeros(capacity, np.int32)
    while leaves := search.collect(packed, slots):
        search.apply(*evaluate(packed[:leaves]))
    return [_difference(search, slot, each) for slot, each in enumerate(chosen)]


def _difference(search: _core.Search, slot: int, chosen: ChosenPly) -> Difference:
    action, ply, game = search.result(slot).action, chosen.ply, chosen.game
    search.play(slot, action)  # which writes down what a record would have of it
    ours = search.record(slot)
    spent = int(game["simulations"][ply])  # 0 in a game that a safety cap ended, which teaches nothing
    policies = ours.policies[-1].astype(np.float32), game["policies"][ply].astype(np.float32)
    return Difference(
        uid=chosen.uid,
        ply=ply,
        action=action != int(game["actions"][ply]),
        simulations=abs(int(ours.simulations[-1]) - spent) if spent else 0,
        policy=float(np.abs(policies[0] - policies[1]).sum()) / 2,
        value=float(np.abs(ours.root_values[-1] - game["root_values"][ply]).max()),
    )
