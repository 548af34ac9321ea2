"""How a step moves the weights: AdamW, its learning rate, and the average that is published and plays (Polyak and Juditsky, 1992)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from azq.config import LearnerConfig


def decay_at(decay: float, step: int) -> float:
    """The decay at a step: small at first, so that the random weights of the start do not linger."""
    return min(decay, (1.0 + step) / (10.0 + step))


class Ema:
    def __init__(self, module: nn.Module, decay: float) -> None:
        self._decay = decay
        self.follow(module)

    def follow(self, module: nn.Module) -> None:
        """Averages the weights of this module from now on, beginning with those it has."""
        self.module = deepcopy(module).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Moves the average towards the module's weights; `step` counts from 0. Buffers are copied."""
        share = 1.0 - decay_at(self._decay, step)
        ours: list[Tensor] = list(self.module.parameters())
        theirs: list[Tensor] = list(module.parameters())
        torch._foreach_lerp_(ours, theirs, share)
        for mine, other in zip(self.module.buffers(), module.buffers(), strict=True):
            mine.copy_(other)


def learning_rate(config: LearnerConfig, step: int, progress: float) -> float:
    """Linear warm-up over `warmup_steps`, then a drop by `lr_drop_factor` at each share of the horizon in `lr_drops`."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    drops = sum(progress >= share for share in config.lr_drops)
    return float(config.learning_rate * warm * config.lr_drop_factor**drops)


def adamw(module: nn.Module, config: LearnerConfig) -> torch.optim.AdamW:
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    kinds = [[p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]]
    groups = [{"params": kind, "weight_decay": decay_of(kind, config)} for kind in kinds if kind]
    fused = parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=fused)


def decay_of(kind: Sequence[nn.Parameter], config: LearnerConfig) -> float:
    """The weight decay of parameters of one kind: none of biases and the like."""
    return float(config.weight_decay) if kind[0].ndim >= 2 else 0.0
