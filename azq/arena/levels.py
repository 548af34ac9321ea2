"""Levels of play: weights, simulations and chance in the choice that play at a wanted strength; and all of them for a page. Pure.

The rungs of a run's ladder are its rated weight versions at the budget of their matches: those Elo were measured, and so is each only as
good as its interval. Below the weakest and above the strongest, budget and temperature are turned; what that costs or brings is estimated
by what it did at connect four.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from azq.config import RunSections
from azq.errors import NotFound
from azq.ratings.elo import Rating, version_of
from azq.search.search import greedy, largest_budget
from azq.wire.messages import ModelEvent

# Connect four, a network after four minutes of training, 200 games each against itself with 64 simulations and no temperature.
ELO_OF_DOUBLING = 60.0  # of the simulations: 81, 127 and 175 for one, two and three doublings
EASIER = ((1.0, 2.0, 110.0), (0.25, 2.0, 250.0), (0.25, 4.0, 330.0), (0.125, 4.0, 410.0))  # share of simulations, temperature, Elo below
FEWEST = 4  # simulations


@dataclass(frozen=True, slots=True)
class Level:
    """What plays at about this Elo; `measured` where matches say so."""

    elo: float
    weight_version: int
    num_simulations: int
    temperature: float = 0.0
    measured: bool = True


def ladder(ratings: Iterable[Rating], num_simulations: int, most: int) -> list[Level]:
    """The levels of a run, weakest first; empty without ratings.

    `num_simulations` is the budget of the rated matches, `most` the largest that may be spent on a move.
    """
    rated = {version: rating.elo for rating in ratings if (version := version_of(rating.player)) is not None}
    rungs: list[Level] = []
    for version, elo in sorted(rated.items()):
        if not rungs or elo >= rungs[-1].elo:  # a version that lost strength adds no level
            rungs.append(Level(elo, version, min(num_simulations, most)))
    if not rungs:
        return []
    weakest, strongest = rungs[0], rungs[-1]
    easier = [
        Level(weakest.elo - less, weakest.weight_version, max(FEWEST, round(share * weakest.num_simulations)), temperature, measured=False)
        for share, temperature, less in reversed(EASIER)
    ]
    harder: list[Level] = []
    while (budget := num_simulations << (len(harder) + 1)) <= most:
        elo = strongest.elo + ELO_OF_DOUBLING * (len(harder) + 1)
        harder.append(Level(elo, strongest.weight_version, budget, measured=False))
    return [*easier, *rungs, *harder]


def nearest(levels: Sequence[Level], elo: float) -> Level:
    """The level whose Elo is nearest to the wanted one. Raises `NotFound` where there are none."""
    if not levels:
        raise NotFound("this run has no rated weights yet, and so no levels; name weights and simulations")
    return min(levels, key=lambda level: abs(level.elo - elo))


def best_version(ratings: Iterable[Rating]) -> int | None:
    """The weights with the highest rating, the newer of equals; None where none are rated."""
    rated = [(rating.elo, version) for rating in ratings if (version := version_of(rating.player)) is not None]
    return max(rated)[1] if rated else None


def drawn(policy: Sequence[float], temperature: float, luck: random.Random) -> int:
    """An action with probability in proportion to what the search thinks of it to the power 1 / temperature, which is above 0."""
    most = max(policy)
    return luck.choices(range(len(policy)), [(share / most) ** (1.0 / temperature) for share in policy])[0]


TAB_SIMULATIONS = 1600  # a move of a level: a tab is slower than a server


@dataclass(frozen=True, slots=True)
class TabNetwork:
    """A network that a tab can fetch."""

    version: int
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Playable:
    """All of one run; `search` is what the core in the tab is given, whatever the simulations."""

    run: str
    game: str
    params: dict[str, Any]
    search: dict[str, Any]
    networks: list[TabNetwork]
    levels: list[Level]


def playable(run: str, sections: RunSections, models: Sequence[ModelEvent], ratings: Iterable[Rating]) -> Playable:
    """A run for tabs; networks by version, levels of those alone that there are networks of."""
    networks = [TabNetwork(model.version, model.sha256, model.size) for model in sorted(models, key=lambda model: model.version)]
    there = {network.version for network in networks}
    levels = ladder((rating for rating in ratings if version_of(rating.player) in there), sections.arena.num_simulations, TAB_SIMULATIONS)
    search = greedy(sections.search, largest_budget(sections.search)).model_dump(exclude={"schedule"})
    search |= {"random_opening_plies": 0, "leaves_per_step": 1}
    return Playable(run, sections.run.game, dict(sections.run.params), search, networks, levels)
