"""The search settings a human wrote, as the core wants them."""

from __future__ import annotations

from azq import _core
from azq.config import SearchConfig


def exploring(search: SearchConfig, *, random_opening_plies: int = 0) -> _core.SearchConfig:
    """Self-play's settings: noise, temperature and random opening plies as configured."""
    return _core.SearchConfig(**search.model_dump(), random_opening_plies=random_opening_plies)


def strongest(search: SearchConfig, num_simulations: int) -> _core.SearchConfig:
    """The settings of a player that wants to win: the run's search with this budget and without any exploration."""
    values = search.model_dump()
    values.update(num_simulations=num_simulations, gumbel_scale=0.0, dirichlet_fraction=0.0, temperature=0.0)
    return _core.SearchConfig(**values)
