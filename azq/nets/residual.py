"""Networks of residual blocks without normalisation: branches start as zero, so depth costs nothing at the start of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from azq.errors import ConfigError
from azq.nets.network import Network, PlaceLinear, pooled
from azq.nets.spec import NetSpec

POLICY_CHANNELS = 16
VALUE_CHANNELS = 8
VALUE_HIDDEN = 64
POOLED_CHANNELS = 32  # of the value, where they are pooled over the board


Layer = nn.Conv2d | nn.Linear


class Kernels(NamedTuple):
    """What a layer is computed with together with the relu after it."""

    relu: Callable[[Layer, Tensor], Tensor]  # relu(layer(x))
    sum_relu: Callable[[Layer, Tensor, Tensor], Tensor]  # relu(layer(x) + z)


TORCH = Kernels(lambda layer, x: F.relu(layer(x)), lambda layer, x, z: F.relu(layer(x) + z))


def _initialise(layer: Layer, scale: float = 1.0) -> None:
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    with torch.no_grad():
        layer.weight *= scale
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


class Block(nn.Module):
    """relu(x + b(relu(a(x)))); b starts at zero (Fixup: Zhang et al., ICLR 2019, section 3.2). Shapes stay as they are."""

    def __init__(self, layer: Callable[[], Layer], depth: int) -> None:
        super().__init__()
        self.a, self.b = layer(), layer()
        _initialise(self.a, depth**-0.5)
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.b.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, kernels: Kernels = TORCH) -> Tensor:
        return kernels.sum_relu(self.b, kernels.relu(self.a, x), x)


class Mlp(Network):
    """`blocks` residual layers of K = `channels` over all bits and scalars at once, for games whose observation is not a picture."""

    def __init__(self, spec: NetSpec, blocks: int, channels: int, auxiliary: Sequence[str] = ()) -> None:
        super().__init__(spec, auxiliary)
        self.stem = nn.Linear(spec.planes * spec.cells + spec.scalars, channels)
        self.blocks = nn.ModuleList(Block(lambda: nn.Linear(channels, channels), blocks) for _ in range(blocks))
        _initialise(self.stem)
        self._make_heads(channels, channels)

    def features(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer (B, K), twice."""
        bits = planes.flatten(1)
        x = F.relu(self.stem((torch.cat((bits, scalars), 1) if self.spec.scalars else bits).to(self.stem.weight.dtype)))
        for block in self.blocks:
            x = block(x)
        return x, x


def with_parity(planes: Tensor) -> Tensor:
    """Planes of bits (B, C, H, W) and one more, all ones where the bits set are odd in number: (B, C + 1, H, W).

    Convolutions cannot count, and where stones are never taken this is who made the first move (AlphaZero's plane of the colour), which
    decides who runs out of harmless moves.
    """
    count = planes.sum((1, 2, 3), dtype=torch.float32)  # bfloat16 counts to 256
    odd = (count - 2.0 * torch.floor(count / 2.0)).to(planes.dtype)
    return torch.cat((planes, odd[:, None, None, None].expand(-1, 1, *planes.shape[2:])), 1)


class ResNet(Network):
    """`blocks` residual blocks of K = `channels`, of 3x3 convolutions. Raises ConfigError for a game without planes."""

    value_channels = VALUE_CHANNELS

    def __init__(self, spec: NetSpec, blocks: int, channels: int, auxiliary: Sequence[str] = (), parity: bool = False) -> None:
        super().__init__(spec, auxiliary)
        self.parity = parity
        if spec.planes == 0 or spec.cells < 2:
            raise ConfigError("network.kind = 'resnet' needs a game with planes of at least two cells; set network.kind = 'mlp'")
        self.stem = nn.Conv2d(spec.planes + parity, channels, 3, padding=1)
        self.scalars = nn.Linear(spec.scalars, channels, bias=False) if spec.scalars else None
        self.blocks = nn.ModuleList(Block(lambda: nn.Conv2d(channels, channels, 3, padding=1), blocks) for _ in range(blocks))
        self.squeeze = nn.Conv2d(channels, POLICY_CHANNELS + self.value_channels, 1)
        self.value_hidden = nn.Linear(self._value_width(), VALUE_HIDDEN)
        for layer in (self.stem, self.squeeze, self.value_hidden):
            _initialise(layer)
        self._make_heads(POLICY_CHANNELS * spec.cells, VALUE_HIDDEN)

    def trunk_to(self, dtype: torch.dtype) -> ResNet:
        """Runs the convolutions in `dtype`; the value's hidden layer counts as a head."""
        super().trunk_to(dtype)
        self.value_hidden.to(self.policy.weight.dtype)
        return self

    def features(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """Policy channels (B, POLICY_CHANNELS * H * W) and the value's hidden layer (B, VALUE_HIDDEN)."""
        x = self.trunk(planes, scalars)
        policy, value = x[:, :POLICY_CHANNELS].flatten(1), x[:, POLICY_CHANNELS:].flatten(1)
        return policy, F.relu(self.value_hidden(value.to(self.value_hidden.weight.dtype)))

    def trunk(self, planes: Tensor, scalars: Tensor, kernels: Kernels = TORCH) -> Tensor:
        """Channels of both heads (B, POLICY_CHANNELS + value_channels, H, W)."""
        planes = planes.to(self.stem.weight.dtype)
        if self.parity:
            planes = with_parity(planes)
        if self.scalars is None:
            x = kernels.relu(self.stem, planes)
        else:
            x = kernels.sum_relu(self.stem, planes, self.scalars(scalars.to(planes.dtype))[:, :, None, None])
        for block in self.blocks:
            x = block(x, kernels)
        return kernels.relu(self.squeeze, x)

    def _value_width(self) -> int:
        return VALUE_CHANNELS * self.spec.cells


class GlobalResNet(ResNet):
    """One whose heads know no board size: weights of one fit another. Raises ConfigError where actions do not lie on the board."""

    value_channels = POOLED_CHANNELS

    def __init__(self, spec: NetSpec, blocks: int, channels: int, auxiliary: Sequence[str] = (), parity: bool = False) -> None:
        if not spec.action_layout:
            raise ConfigError("network.global_heads needs a game that says where its actions lie on the board; leave it out for this one")
        super().__init__(spec, blocks, channels, auxiliary, parity)

    def features(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's map (B, POLICY_CHANNELS, H, W) and the value's hidden layer (B, VALUE_HIDDEN)."""
        x = self.trunk(planes, scalars).to(self.value_hidden.weight.dtype)
        return x[:, :POLICY_CHANNELS], F.relu(self.value_hidden(pooled(x[:, POLICY_CHANNELS:])))

    def _value_width(self) -> int:
        return 2 * POOLED_CHANNELS

    def _action_head(self, wide: int) -> PlaceLinear:
        return PlaceLinear(self.spec, POLICY_CHANNELS)
