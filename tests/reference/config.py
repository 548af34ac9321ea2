"""Settings of the reference search: azq.config.SearchConfig with its floats in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from azq import _core
from reference.float32 import F


@dataclass(frozen=True)
class Settings:
    """The same names as azq._core.SearchConfig; floats become float32."""

    algorithm: str
    num_simulations: int
    leaves_per_step: int = 1
    batch_root: bool = False
    decisive_moves: bool = False
    reuse_subtree: bool = True
    max_considered_actions: int = 16
    gumbel_scale: F | float = 1.0
    c_visit: F | float = 50.0
    c_scale: F | float = 1.0
    q_range: F | float = 2.0
    c_puct: F | float = 1.5
    fpu_reduction: F | float = 0.25
    dirichlet_alpha: F | float = 1.0
    dirichlet_fraction: F | float = 0.25
    temperature: F | float = 1.0
    temperature_plies: int = 10
    determinizations: int = 0
    random_opening_plies: int = 0

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            if isinstance(value, float):
                object.__setattr__(self, key, F(value))

    def plain(self) -> dict[str, Any]:
        """The same settings in Python's own types."""
        return {key: float(value) if isinstance(value, np.floating) else value for key, value in vars(self).items()}

    def core(self) -> _core.SearchConfig:
        """The same settings for the core."""
        return _core.SearchConfig(**self.plain())
