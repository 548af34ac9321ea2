"""A residual multi-layer perceptron for games whose observation is not a picture."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from azq.nets.network import Network
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


class Mlp(Network):
    """`blocks` residual layers of K = `channels` over all bits and scalars at once."""

    def __init__(self, spec: NetSpec, blocks: int, channels: int, auxiliary: Sequence[str] = ()) -> None:
        super().__init__(spec, auxiliary)
        self.stem = nn.Linear(spec.planes * spec.cells + spec.scalars, channels)
        self.blocks = nn.ModuleList(Layer(channels, blocks) for _ in range(blocks))
        nn.init.kaiming_normal_(self.stem.weight, nonlinearity="relu")
        nn.init.zeros_(self.stem.bias)
        self._make_heads(channels, channels)

    def features(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer (B, K), twice."""
        x = F.relu(self.stem(torch.cat((planes.flatten(1), scalars), 1).to(self.stem.weight.dtype)))
        for block in self.blocks:
            x = block(x)
        return x, x
