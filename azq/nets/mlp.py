"""A residual multi-layer perceptron for games whose observation is not a picture."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from azq.nets.spec import NetSpec


class Layer(nn.Module):
    """relu(x + b(relu(a(x)))); b starts at zero, as in the residual network."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.a = nn.Linear(width, width)
        self.b = nn.Linear(width, width)
        nn.init.kaiming_normal_(self.a.weight, nonlinearity="relu")
        with torch.no_grad():
            self.a.weight *= depth**-0.5
        nn.init.zeros_(self.a.bias)
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.b.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, K) to the same shape."""
        return F.relu(x + self.b(F.relu(self.a(x))))


class Mlp(nn.Module):
    """`blocks` residual layers of K = `channels`; planes (B, C, H, W), scalars (B, S) -> logits (B, A), values (B, V) in [-1, 1]."""

    def __init__(self, spec: NetSpec, blocks: int, channels: int) -> None:
        super().__init__()
        self.spec = spec
        self.stem = nn.Linear(spec.planes * spec.cells + spec.scalars, channels)
        self.blocks = nn.ModuleList(Layer(channels, blocks) for _ in range(blocks))
        self.policy = nn.Linear(channels, spec.num_actions)
        self.value = nn.Linear(channels, spec.value_size)
        nn.init.kaiming_normal_(self.stem.weight, nonlinearity="relu")
        nn.init.zeros_(self.stem.bias)
        for head in (self.policy, self.value):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def trunk_to(self, dtype: torch.dtype) -> Mlp:
        """Runs the residual layers in `dtype`; the heads stay as they are."""
        self.stem.to(dtype)
        self.blocks.to(dtype)
        return self

    def forward(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, A), unmasked, and values (B, V)."""
        x = F.relu(self.stem(torch.cat((planes.flatten(1), scalars), 1).to(self.stem.weight.dtype)))
        for block in self.blocks:
            x = block(x)
        x = x.to(self.policy.weight.dtype)
        return self.policy(x), torch.tanh(self.value(x))
