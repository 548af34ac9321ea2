"""The search settings a human wrote, as the core wants them."""

from __future__ import annotations

from typing import Any

from azq import _core
from azq.config import SearchConfig


def exploring(search: SearchConfig, *, random_opening_plies: int = 0) -> _core.SearchConfig:
    """Self-play's settings: noise, temperature and random opening plies as configured."""
    return _core.SearchConfig(**_of_core(search), random_opening_plies=random_opening_plies)


def strongest(search: SearchConfig, num_simulations: int) -> _core.SearchConfig:
    """The settings of a player that wants to win: the run's search with this budget and without any exploration."""
    values = _of_core(search)
    values.update(num_simulations=num_simulations, gumbel_scale=0.0, dirichlet_fraction=0.0, temperature=0.0)
    return _core.SearchConfig(**values)


def search_at(search: SearchConfig, progress: float) -> SearchConfig:
    """The settings at this share of the run's horizon: the budget of the last stage that has begun (Wu et al., 2023: MiniZero)."""
    budgets = [search.num_simulations, *(stage.num_simulations for stage in search.schedule if stage.at <= progress)]
    return search.model_copy(update={"num_simulations": budgets[-1], "schedule": ()})


def _of_core(search: SearchConfig) -> dict[str, Any]:
    return search.model_dump(exclude={"schedule"})
