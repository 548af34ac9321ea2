"""Search arenas that outlive a slice: allocating and touching hundreds of megabytes again each minute would be felt."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from azq import _core
from azq.actor.turn import group_sizes
from azq.config import RunSections
from azq.search.make import make_search
from azq.search.settings import exploring

MakeSearch = Callable[..., Any]


class Arenas:
    """Keeps the searches of one self-play setting; another setting replaces them."""

    def __init__(self, make_search: MakeSearch = make_search) -> None:
        self._make_search = make_search
        self._key: Hashable = None
        self._searches: Sequence[_core.Search] = ()

    def searches(self, game: _core.Game, sections: RunSections, games: int) -> Sequence[_core.Search]:
        """One empty search for each group of `games` games in flight; the memory is that of the last slice where it fits."""
        key = (game.name, repr(sorted(game.params.items())), sections.search, sections.selfplay, sections.run.seed, games)
        if key != self._key:
            self.forget()  # the old arenas go before the new ones come
            config = exploring(sections.search, random_opening_plies=sections.selfplay.random_opening_plies)
            self._searches = [
                self._make_search(
                    game,
                    config,
                    num_slots=size,
                    seed=sections.run.seed,
                    num_threads=sections.selfplay.threads,
                    autoplay=True,
                    cache_entries=sections.selfplay.cache_entries,
                )
                for size in group_sizes(games, sections.selfplay.groups)
            ]
            self._key = key
        return self._searches

    def forget(self) -> None:
        """Drops the searches; the next slice gets new ones."""
        self._searches, self._key = (), None

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arenas."""
        return sum(search.memory_bytes for search in self._searches)
