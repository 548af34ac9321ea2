"""Muon: steps of matrices along the orthogonalised momentum of their gradients (Jordan et al., 2024), all else by AdamW.

A convolution's kernel is the matrix of its outputs by all that each of them reads. torch.optim.Muon takes matrices alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
STEPS = 5  # of Newton and Schulz's iteration; singular values then lie within 0.7 and 1.2
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
RMS = 0.2  # of an update's entries, as AdamW's have it, so that rates are alike (Liu et al., arXiv:2502.16982, section 2.2)
MATRICES = "matrices"  # what groups of them have, and AdamW's have not: their share of the learning rate


class Muon(torch.optim.AdamW):
    """AdamW, but for groups marked as matrices, whose parameters it sees without gradients and so leaves alone."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves matrices, and with AdamW what is left. A parameter's gradient is used up."""
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
        """The gradient and what is left of those before it, looked at one step ahead (Nesterov)."""
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
