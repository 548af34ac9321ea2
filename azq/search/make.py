"""The search that a game asks for: the core's, or the one in Python."""

from __future__ import annotations

from typing import cast

from azq import _core
from azq.search.portable import PortableSearch


def make_search(
    game: _core.Game,
    config: _core.SearchConfig,
    *,
    num_slots: int,
    seed: int,
    num_threads: int = 1,
    autoplay: bool = True,
    cache_entries: int = 0,
) -> _core.Search:
    """A search of `num_slots` games; arguments as of `azq._core.Search`."""
    if isinstance(game, _core.Game):
        return _core.Search(
            game, config, num_slots=num_slots, seed=seed, num_threads=num_threads, autoplay=autoplay, cache_entries=cache_entries
        )
    return cast(_core.Search, PortableSearch(game, config, num_slots=num_slots, seed=seed, autoplay=autoplay))
