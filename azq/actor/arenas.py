"""Search arenas and the evaluation cache, which outlive a slice: making hundreds of megabytes anew each minute would be felt."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from azq import _core
from azq.actor.turn import group_sizes, groups_that_fit
from azq.config import RunSections
from azq.search.search import Search, exploring, make_cache, make_search
from azq.wire.leaves import most_leaves

MakeSearch = Callable[..., Any]


class Arenas:
    """Keeps the searches of one self-play setting; another setting replaces them."""

    def __init__(self, make_search: MakeSearch = make_search) -> None:
        self._make_search = make_search
        self._key: Hashable = None
        self._searches: Sequence[Search] = ()
        self._cache: _core.EvaluationCache | None = None
        self._run: Hashable = ""

    def searches(self, game: _core.Game, sections: RunSections, games: int, run: Hashable = "") -> Sequence[Search]:
        """One empty search for each group of `games` games in flight; the memory is that of the last slice where it fits.

        More groups than asked for where answers would else outgrow a message. Raises `ConfigError` where no group is small enough.

        All groups share one cache of evaluations, which another run's slice finds empty: weight versions are a run's own. `run` tells runs
        apart, also those that bear one name in turn.
        """
        key = (game.name, repr(sorted(game.params.items())), sections.search, sections.selfplay, sections.run.seed, games)
        if key != self._key:
            self.forget()  # the old arenas go before the new ones come
            most = most_leaves(game.packed_size(), game.num_distinct_actions(), game.value_size())
            groups = groups_that_fit(games, sections.selfplay.groups, sections.search.leaves_per_step, most)
            self._cache = make_cache(game, sections.selfplay.cache_entries)
            config = exploring(sections.search, random_opening_plies=sections.selfplay.random_opening_plies)
            self._searches = [
                self._make_search(
                    game,
                    config,
                    num_slots=size,
                    seed=sections.run.seed,
                    num_threads=sections.selfplay.threads,
                    autoplay=True,
                    cache=self._cache,
                    merge_symmetries=sections.selfplay.merge_symmetries,
                )
                for size in group_sizes(games, groups)
            ]
            self._key = key
        if run != self._run and self._cache is not None:
            self._cache.clear()
        self._run = run
        return self._searches

    def forget(self) -> None:
        """Drops the searches; the next slice gets new ones."""
        self._searches, self._key, self._cache = (), None, None

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arenas and the cache."""
        cache_bytes = 0 if self._cache is None else self._cache.memory_bytes
        return cache_bytes + sum(search.memory_bytes for search in self._searches)
