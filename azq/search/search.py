"""The door to search: many games searched in step, by the core or, for games in Python, by `PortableSearch`; and what it is set to."""

from __future__ import annotations

from typing import Any

from azq import _core
from azq.config import SearchConfig
from azq.errors import ConfigError
from azq.search.portable import PortableRecord, PortableResult, PortableSearch

FASTEST = 50  # simulations a millisecond: more than one tree with a network comes to
MOST_SIMULATIONS = 1 << 20  # that the core takes

#: What actors and the arena search with: `azq._core.Search` says what each call does.
Search = _core.Search | PortableSearch
Record = _core.Record | PortableRecord  # of a game
Result = _core.Result | PortableResult  # of a spent search


def leaves_at_once(search: SearchConfig | _core.SearchConfig, game: _core.Game) -> int:
    """Most leaves that a game has out at once, as the core counts them (config.hpp)."""
    if not search.batch_root:
        return int(search.leaves_per_step)
    most = search.max_considered_actions if search.algorithm == "gumbel" else search.num_simulations
    return int(max(search.leaves_per_step, min(most, game.num_distinct_actions())))


def check_search(search: SearchConfig | _core.SearchConfig, game: _core.Game) -> None:
    """Raises `ConfigError` for what a game's search does not have."""
    for setting in ("batch_root", "decisive_moves"):
        if getattr(search, setting) and (game.is_chance() or game.is_hidden()):
            reason = "is of games in which nothing is hidden or left to chance"
            raise ConfigError(f"search.{setting} {reason}, and {game.name} is none; set it to false")


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
) -> Search:
    """A search of `num_slots` games; arguments as of `azq._core.Search`. Games in Python merge no symmetries. Raises as `check_search`."""
    check_search(config, game)
    if not isinstance(game, _core.Game):
        return PortableSearch(game, config, num_slots=num_slots, seed=seed, autoplay=autoplay)
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


def exploring(search: SearchConfig, *, random_opening_plies: int = 0) -> _core.SearchConfig:
    """Self-play's settings: noise, temperature and random opening plies as configured."""
    return _core.SearchConfig(**exploring_values(search, random_opening_plies=random_opening_plies))


def exploring_values(search: SearchConfig, *, random_opening_plies: int = 0) -> dict[str, Any]:
    """The same by their names, as the core takes them wherever it runs."""
    return {**search.model_dump(exclude={"schedule"}), "random_opening_plies": random_opening_plies}


def greedy(search: SearchConfig, num_simulations: int) -> SearchConfig:
    """The run's search with this budget and without any exploration."""
    update = {"num_simulations": num_simulations, "gumbel_scale": 0.0, "dirichlet_fraction": 0.0, "temperature": 0.0}
    return search.model_copy(update=update)


def strongest(search: SearchConfig, num_simulations: int) -> _core.SearchConfig:
    """The settings of a player that wants to win."""
    return exploring(greedy(search, num_simulations))


def until_stopped(search: SearchConfig, move_ms: int) -> _core.SearchConfig:
    """The settings of a player whose move a clock ends: PUCT, whose answer is good at any moment, and more simulations than fit."""
    return strongest(search.model_copy(update={"algorithm": "puct"}), min(MOST_SIMULATIONS, FASTEST * move_ms))


def search_at(search: SearchConfig, progress: float, samples: int = 0) -> SearchConfig:
    """The settings at this share of the run's horizon, after so many samples: the budget of the last stage that has begun (Wu et al., 2023:
    MiniZero)."""
    budgets = [search.num_simulations, *(stage.num_simulations for stage in search.schedule if stage.begun(progress, samples))]
    return search.model_copy(update={"num_simulations": budgets[-1], "schedule": ()})


def largest_budget(search: SearchConfig) -> int:
    """The most simulations that a run's schedule ever comes to."""
    return max([search.num_simulations, *(stage.num_simulations for stage in search.schedule)])
