"""Settings of the reference search: azq.config.SearchConfig with its floats in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from azq import _core

from reference.float32 import F


@dataclass(frozen=True)
class Settings:
    """The same names as azq._core.SearchConfig."""

    algorithm: str
    num_simulations: int
    leaves_per_step: int = 1
    reuse_subtree: bool = True
    max_considered_actions: int = 16
    gumbel_scale: F = F(1.0)
    c_visit: F = F(50.0)
    c_scale: F = F(1.0)
    c_puct: F = F(1.5)
    fpu_reduction: F = F(0.25)
    dirichlet_alpha: F = F(1.0)
    dirichlet_fraction: F = F(0.25)
    temperature: F = F(1.0)
    temperature_plies: int = 10
    random_opening_plies: int = 0

    def core(self) -> _core.SearchConfig:
        """The same settings for the core."""
        plain: dict[str, Any] = {key: float(value) if isinstance(value, F) else value for key, value in vars(self).items()}
        return _core.SearchConfig(**plain)
