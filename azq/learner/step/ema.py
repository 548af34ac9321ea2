"""The exponential moving average of the weights: what is published and plays (Polyak and Juditsky, 1992)."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn


def decay_at(decay: float, step: int) -> float:
    """The decay at a step: small at first, so that the random weights of the start do not linger."""
    return min(decay, (1.0 + step) / (10.0 + step))


class Ema:
    """Holds the averaged copy of a module."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = deepcopy(module).eval().requires_grad_(False)
        self._decay = decay

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Moves the average towards the module's weights; `step` counts from 0. Buffers are copied."""
        share = 1.0 - decay_at(self._decay, step)
        ours: list[Tensor] = list(self.module.parameters())
        theirs: list[Tensor] = list(module.parameters())
        torch._foreach_lerp_(ours, theirs, share)
        for mine, other in zip(self.module.buffers(), module.buffers(), strict=True):
            mine.copy_(other)
