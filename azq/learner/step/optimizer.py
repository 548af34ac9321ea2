"""How a step moves the weights: AdamW or Muon, the rate, and the average that is published and plays (Polyak and Juditsky, 1992)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from azq.config import LearnerConfig
from azq.learner.step.muon import MATRICES, Muon


def decay_at(decay: float, step: int) -> float:
    """The decay at a step: small at first, so that the random weights of the start do not linger."""
    return min(decay, (1.0 + step) / (10.0 + step))


class Ema:
    def __init__(self, module: nn.Module, decay: float) -> None:
        self._decay = decay
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


LR_DROP = 0.2


def learning_rate(config: LearnerConfig, step: int, progress: float) -> float:
    """Linear warm-up over `warmup_steps`, a drop to a fifth at each share of the horizon in `lr_drops`, `lr_schedule`'s factor.

    Samples, after which a stage of it may begin, are those that the limiter wants to be there for this step.
    """
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    drops = sum(progress >= share for share in config.lr_drops)
    samples = int(step * config.batch_size / config.samples_per_insert)
    factors = [1.0, *(stage.factor for stage in config.lr_schedule if stage.begun(progress, samples))]
    return float(config.learning_rate * warm * LR_DROP**drops * factors[-1])


def make_optimizer(module: nn.Module, config: LearnerConfig) -> torch.optim.AdamW:
    """AdamW, or Muon for the matrices of the trunk's blocks and AdamW for stem, heads and biases."""
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    kinds: dict[str, list[nn.Parameter]] = {MATRICES: [], "other": [], "flat": []}
    for name, parameter in named:
        matrix = config.muon_rate > 0 and name.startswith("blocks.") and parameter.ndim >= 2
        kinds[MATRICES if matrix else "other" if parameter.ndim >= 2 else "flat"].append(parameter)
    groups: list[dict[str, Any]] = [{"params": kind, "weight_decay": decay_of(kind, config)} for kind in kinds.values() if kind]
    if kinds[MATRICES]:
        groups[0][MATRICES] = config.muon_rate / config.learning_rate
    fused = named[0][1].device.type in ("cpu", "cuda")
    return (Muon if config.muon_rate > 0 else torch.optim.AdamW)(groups, lr=config.learning_rate, fused=fused)


def decay_of(kind: Sequence[nn.Parameter], config: LearnerConfig) -> float:
    """The weight decay of parameters of one kind: none of biases and the like."""
    return float(config.weight_decay) if kind[0].ndim >= 2 else 0.0
