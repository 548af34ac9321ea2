"""The search that a game asks for: the core's, or the one in Python."""

from __future__ import annotations

from typing import cast

from azq import _core
from azq.search.portable import PortableSearch


def make_cache(game: _core.Game, entries: int) -> _core.EvaluationCache | None:
    """A cache that the searches of a game share; None for 0 entries and for games in Python, whose search has none."""
    return _core.EvaluationCache(game, entries) if entries and isinstance(game, _core.Game) else None


def make_search(
    game: _core.Game,
    config: _core.SearchConfig,
    *,
    num_slots: int,
    seed: int,
    num_threads: int = 1,
    autoplay: bool = True,
    cache: _core.EvaluationCache | None = None,
    merge_symmetries: bool = False,
) -> _core.Search:
    """A search of `num_slots` games; arguments as of `azq._core.Search`. Games in Python merge no symmetries."""
    if isinstance(game, _core.Game):
        return _core.Search(
            game,
            config,
            num_slots=num_slots,
            seed=seed,
            num_threads=num_threads,
            autoplay=autoplay,
            cache=cache,
            merge_symmetries=merge_symmetries,
        )
    return cast(_core.Search, PortableSearch(game, config, num_slots=num_slots, seed=seed, autoplay=autoplay))
