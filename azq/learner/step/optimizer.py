"""How a step moves the weights: AdamW or Muon, the rate, and the average that is published and plays (Polyak and Juditsky, 1992)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from azq.config import LearnerConfig

LR_DROP = 0.2
MOMENTUM = 0.95
STEPS = 5  # of Newton and Schulz's iteration; singular values then lie within 0.7 and 1.2
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
RMS = 0.2  # of an update's entries, as AdamW's have it, so that rates are alike (Liu et al., arXiv:2502.16982, section 2.2)
MATRICES = "matrices"  # what groups of them have, and AdamW's have not: their share of the learning rate


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


class Muon(torch.optim.AdamW):
    """AdamW, but matrices move along the orthogonalised momentum of their gradients (Jordan et al., 2024).

    A convolution's kernel is the matrix of its outputs by all that each of them reads. torch.optim.Muon takes matrices alone.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves matrices by Muon, the rest by AdamW; matrices lose their gradients."""
        for group in self.param_groups:
            if group.get(MATRICES):
                self._move(group["params"], group["lr"], group["weight_decay"])
        return super().step(closure)

    def _move(self, parameters: Iterable[Tensor], rate: float, decay: float) -> None:
        by_shape: dict[tuple[int, ...], list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
        for alike in by_shape.values():
            updates = orthogonalised(torch.stack([self._momentum(parameter).flatten(1) for parameter in alike]))
            scale = RMS * max(updates.shape[1:]) ** 0.5
            for parameter, update in zip(alike, updates, strict=True):
                parameter.mul_(1 - rate * decay).add_(update.view(parameter.shape), alpha=-rate * scale)
                parameter.grad = None

    def _momentum(self, parameter: Tensor) -> Tensor:
        """Nesterov momentum of the gradient."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None, "only parameters with a gradient are moved"
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum_buffer"].lerp_(gradient, 1 - MOMENTUM)
        return gradient.lerp(buffer, MOMENTUM)


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices (N, R, C) with the singular vectors of those given, and all singular values near 1; zeros stay zeros."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    result: Tensor = x.mT if tall else x
    return result
