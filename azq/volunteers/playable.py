"""What a page needs so that a run's networks play in the tab itself: rules, search, networks, levels. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from azq.arena.levels import Level, ladder
from azq.arena.players import version_of
from azq.arena.rating import Rating
from azq.config import RunSections
from azq.search.search import greedy, largest_budget
from azq.wire.messages import ModelEvent

MOST_SIMULATIONS = 1600  # a move of a level: a tab is slower than a server


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
    levels = ladder((one for one in ratings if version_of(one.player) in there), sections.arena.num_simulations, MOST_SIMULATIONS)
    search = greedy(sections.search, largest_budget(sections.search)).model_dump(exclude={"schedule"})
    search |= {"random_opening_plies": 0, "leaves_per_step": 1}
    return Playable(run, sections.run.game, dict(sections.run.params), search, networks, levels)
