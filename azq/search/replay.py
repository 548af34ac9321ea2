"""A recorded game searched again from its start as its worker searched it, ply by ply, with the reason where something else comes out.

Self-play keeps the played action's subtree, so a ply can be repeated only behind those before it. What a record does not say is tried out:
where a worker that took the game over began with an empty tree, how many steps of a ply were over when new weights came, which budget
of a schedule was in force. What explains a ply is kept for those that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from azq import _core
from azq.config import RunSections, SearchConfig
from azq.search.recomputation import Arrays, Difference, Evaluate, Searched, Stretch, Swap, difference_of, differs, distance, search_again
from azq.search.search import exploring

EQUAL, ROUNDING, DIFFERS = "equal", "within rounding", "differs"
UNEXPLAINED = "no reason is known: another device or precision, settings that were changed since, or another version of azq"
ROUNDED = "the network's outputs were rounded otherwise: another batch, device or precision"


@dataclass(frozen=True, slots=True)
class RecordedGame:
    """A game of the log, and how its run searches."""

    game: _core.Game
    sections: RunSections
    uid: int
    arrays: Arrays
    keeps_trees: bool  # from ply to ply, as servers do where `search.reuse_subtree` says so; tabs never do
    luck: int = 0  # that a gateway handed it out with; 0: that of its number

    @property
    def searched(self) -> list[int]:
        """Plies that carry what a search says."""
        return [int(ply) for ply in np.flatnonzero(self.arrays["simulations"])]

    def budgets(self, ply: int) -> tuple[int, ...]:
        """Simulations that may have been ordered, the likeliest first."""
        search = self.sections.search
        stages = (search.num_simulations, *(stage.num_simulations for stage in search.schedule), self.sections.volunteers.num_simulations)
        return tuple(filter(None, dict.fromkeys((*stages, int(self.arrays["simulations"][ply])))))

    def config(self, budget: int) -> _core.SearchConfig:
        """The settings of the core's search."""
        changes = {"num_simulations": budget, "reuse_subtree": self.keeps_trees, "schedule": ()}
        search: SearchConfig = self.sections.search.model_copy(update=changes)
        return exploring(search, random_opening_plies=self.sections.selfplay.random_opening_plies)


@dataclass(frozen=True, slots=True)
class ReplayedPly:
    """A searched ply: what the record says, what comes out now, and what is between them."""

    searched: Searched
    difference: Difference
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Way:
    """How plies from one on may have been searched, and what that gives; `last`: they end there."""

    stretch: Stretch
    budget: int
    why: str = ""


def replay(recorded: RecordedGame, evaluate: Evaluate, last: int | None = None) -> Iterator[ReplayedPly]:
    """Each searched ply up to `last`, in order. Raises what `evaluate` raises."""
    plies = recorded.searched
    end = plies[-1] if last is None else last
    way = _Way(Stretch(recorded.uid, recorded.arrays, plies[0], end, luck=recorded.luck), recorded.budgets(plies[0])[0])
    reasons: dict[int, str] = {}
    done = -1
    while done < end:
        spoilt = ""
        for searched in _search(recorded, evaluate, [way])[0]:
            ply = searched.ply
            if ply <= done:
                continue
            difference = difference_of(way.stretch, searched)
            if differs(difference) and ply not in reasons:
                better = _explain(recorded, evaluate, way, searched)
                if better is not None:
                    reasons[ply] = better.why
                    way = replace(better, stretch=replace(better.stretch, last=end))
                    break
            verdict, reason = _judge(recorded, difference, reasons.get(ply, ""), spoilt)
            yield ReplayedPly(searched, difference, verdict, reason)
            done = ply
            if recorded.keeps_trees and verdict != EQUAL:
                spoilt = f"its tree was kept from ply {ply}, which is not the same"
        else:
            return


def _explain(recorded: RecordedGame, evaluate: Evaluate, way: _Way, searched: Searched) -> _Way | None:
    """The first other way to search a ply that gives what is recorded, else the nearest one that rounding explains."""
    for ways in _ways(recorded, way, searched):
        tried = [
            (difference_of(other.stretch, plies[-1]), other) for other, plies in zip(ways, _search(recorded, evaluate, ways), strict=True)
        ]
        if tried:
            nearest, best = min(tried, key=lambda pair: distance(pair[0]))
            if not differs(nearest):
                return best
    return None


def _ways(recorded: RecordedGame, way: _Way, searched: Searched) -> Iterator[Sequence[_Way]]:
    """Other ways to search a ply, those that are searched together together, the likeliest first."""
    ply = searched.ply
    here = replace(way.stretch, last=ply)
    alone = Stretch(recorded.uid, recorded.arrays, ply, ply, luck=recorded.luck)
    if recorded.keeps_trees and way.stretch.first != ply:
        yield [_Way(alone, way.budget, "searched with an empty tree: another worker took the game over")]
    for budget in recorded.budgets(ply):
        if budget != way.budget:
            yield [_Way(alone, budget, f"{budget} simulations were ordered, and the tree was empty")]
    now = int(recorded.arrays["weight_versions"][ply])
    before = int(recorded.arrays["weight_versions"][ply - 1]) if ply > recorded.searched[0] else now - 1
    if 0 < before != now:
        for stretch in (here, alone):
            swaps = [Swap(steps, before) for steps in range(1, searched.steps + 1)]
            yield [
                _Way(
                    _with(stretch, ply, swap), way.budget, f"weights changed from {before} to {now} after {swap.steps} steps of its search"
                )
                for swap in swaps
            ]


def _with(stretch: Stretch, ply: int, swap: Swap) -> Stretch:
    swaps: Mapping[int, Swap] = {**stretch.swaps, ply: swap}
    return replace(stretch, swaps=swaps)


def _search(recorded: RecordedGame, evaluate: Evaluate, ways: Sequence[_Way]) -> list[list[Searched]]:
    """All of one budget."""
    if not ways:
        return []
    merge, seed = recorded.sections.selfplay.merge_symmetries and recorded.keeps_trees, recorded.sections.run.seed
    stretches = [way.stretch for way in ways]
    return search_again(recorded.game, seed, recorded.config(ways[0].budget), stretches, evaluate, merge_symmetries=merge)


def _judge(recorded: RecordedGame, difference: Difference, why: str, spoilt: str) -> tuple[str, str]:
    """Verdict and reason."""
    if not differs(difference, exact=True):
        return EQUAL, why
    if not differs(difference):
        return ROUNDING, why or spoilt or ROUNDED
    ply, versions = difference.ply, recorded.arrays["weight_versions"]
    swapped = ply and versions[ply] != versions[ply - 1]
    changed = f"weights changed from {versions[ply - 1]} to {versions[ply]} while it was searched, and not at one moment" if swapped else ""
    return DIFFERS, spoilt or changed or UNEXPLAINED
