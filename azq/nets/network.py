"""What every network has in common: inputs from packed observations, a trunk that a subclass gives, and the heads on top of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from azq.errors import ConfigError
from azq.nets.spec import NetSpec

SCALAR_SCALE = 1.0 / 16.0  # scalars are small counts (checkers on a point, tricks won): this keeps them of the planes' order
_HEADS = ("policy", "value", "outcome", "auxiliary")


class Outputs(NamedTuple):
    """All that a network says of B positions; None for a head it does not have."""

    logits: Tensor  # (B, A), unmasked
    values: Tensor  # (B, V) in [-1, 1]
    outcomes: Tensor | None = None  # (B, K) logits of each outcome
    advantage: Tensor | None = None  # (B, A) of each action over the others, but for a constant
    margin: Tensor | None = None  # (B,) in [-1, 1]
    hidden: Tensor | None = None  # (B, F) logits of each hidden fact


class PlaceLinear(nn.Linear):
    """Logits (B, A) from a map (B, K, H, W): of each cell or column its actions', and from the pooled map those that lie nowhere."""

    def __init__(self, spec: NetSpec, channels: int) -> None:
        super().__init__(channels, spec.action_planes)
        beyond = spec.num_actions - spec.action_planes * spec.action_places
        self.by_column = spec.action_layout == "columns"
        self.beyond = nn.Linear(2 * channels, beyond) if beyond else None

    def forward(self, board: Tensor) -> Tensor:
        logits = super().forward(board.movedim(1, 3)).movedim(3, 1)  # as a convolution of 1 x 1
        logits = (logits.mean(2) if self.by_column else logits).flatten(1)
        return logits if self.beyond is None else torch.cat((logits, self.beyond(pooled(board))), 1)


def pooled(board: Tensor) -> Tensor:
    """(B, 2 K): mean and largest of each channel of a map (B, K, H, W) (Wu, arXiv:1902.10565, section 3.3, which scales means, too)."""
    return torch.stack((board.mean((2, 3)), board.amax((2, 3))), 2).flatten(1)


class Network(nn.Module, ABC):
    """Policy and value heads, and auxiliary heads which teach the trunk and cost nothing where games are played.

    A game with outcomes has an outcome head in the place of the value head: K probabilities, combined by the game's weights.
    All heads start at zero, so the first evaluations are uniform and undecided.
    """

    _outcome_weights: Tensor

    def __init__(self, spec: NetSpec, auxiliary: Sequence[str] = ()) -> None:
        super().__init__()
        for name in auxiliary:
            if name not in spec.auxiliary:
                declared = ", ".join(spec.auxiliary)
                raise ConfigError(f"network.auxiliary names {name!r}, the game has no targets for it; it has them for {declared}")
        self.spec = spec
        self._auxiliary_names = tuple(dict.fromkeys(auxiliary))

    def trunk_to(self, dtype: torch.dtype) -> Self:
        """Runs all but the heads in `dtype`: float16's eleven bits on the wire would be lost in bfloat16."""
        for name, layer in self.named_children():
            if name not in _HEADS:
                layer.to(dtype)
        return self

    def freeze_trunk(self) -> None:
        """Lets only the heads learn."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.partition(".")[0] in _HEADS)

    @abstractmethod
    def features(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """What the heads read, in the trunk's dtype: (B, wide), or a map, for policy, reply and hidden facts, (B, narrow) for all else."""

    def forward(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """Planes (B, C, H, W) and scalars (B, S) to logits (B, A), unmasked, and values (B, V) in [-1, 1]."""
        wide, narrow = self._features(planes, scalars)
        return self.policy(wide), self.values_of(narrow)[0]

    def forward_all(self, planes: Tensor, scalars: Tensor) -> Outputs:
        """The same with every head's output, for training."""
        wide, narrow = self._features(planes, scalars)
        values, outcomes = self.values_of(narrow)
        outputs = {name: head(narrow if name == "margin" else wide) for name, head in self.auxiliary.items()}
        if "margin" in outputs:
            outputs["margin"] = torch.tanh(outputs["margin"].squeeze(1))
        return Outputs(self.policy(wide), values, outcomes, **outputs)

    def outcomes(self, planes: Tensor, scalars: Tensor) -> Tensor:
        """Probabilities (B, K) of the game's outcomes; raises ConfigError for a game without them."""
        if not self.spec.num_outcomes:
            raise ConfigError("the game declares no outcomes, only a value; ask for that")
        return torch.sigmoid(self.outcome(self._features(planes, scalars)[1]))

    def _make_heads(self, wide: int, narrow: int) -> None:
        """Called at the end of a subclass's constructor with the widths of its features."""
        spec = self.spec
        self.policy = self._action_head(wide)
        if spec.num_outcomes:
            self.outcome = nn.Linear(narrow, spec.num_outcomes)
        else:
            self.value = nn.Linear(narrow, spec.value_size)
        self.register_buffer("_outcome_weights", torch.tensor(spec.outcome_weights), persistent=False)
        made: dict[str, Callable[[], nn.Module]] = {
            "advantage": lambda: self._action_head(wide),
            "margin": lambda: nn.Linear(narrow, 1),
            "hidden": lambda: nn.Linear(wide, spec.num_hidden),
        }
        self.auxiliary = nn.ModuleDict({name: made[name]() for name in self._auxiliary_names})
        for name in _HEADS:
            for parameter in getattr(self, name).parameters() if hasattr(self, name) else ():
                nn.init.zeros_(parameter)

    def _action_head(self, wide: int) -> nn.Linear:
        return nn.Linear(wide, self.spec.num_actions)

    def _features(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        wide, narrow = self.features(planes, scalars)
        dtype = self.policy.weight.dtype
        return wide.to(dtype), narrow.to(dtype)

    def values_of(self, narrow: Tensor) -> tuple[Tensor, Tensor | None]:
        """Values (B, V), and the outcomes' logits (B, K) they were combined from."""
        if not self.spec.num_outcomes:
            return torch.tanh(self.value(narrow)), None
        outcomes = self.outcome(narrow)
        # A product and a sum rather than a matrix product, which autocast would compute in bfloat16.
        combined = (torch.sigmoid(outcomes.float()) * self._outcome_weights).sum(1, keepdim=True)
        return combined + self.spec.outcome_bias, outcomes


def unpack(packed: Tensor, spec: NetSpec, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Planes (B, C, H, W) in {0, 1} and scalars (B, S), scaled, from packed observations uint8 (B, P).

    Raises ValueError when P is not the spec's.
    """
    if packed.shape[1] != spec.packed_size:
        raise ValueError(f"packed observations of {packed.shape[1]} bytes, the network takes {spec.packed_size}")
    planes = unpack_bits(packed[:, : spec.plane_bytes], spec.planes * spec.cells).to(dtype)
    scalars = packed[:, spec.plane_bytes :].contiguous().view(torch.int8).to(dtype) * SCALAR_SCALE
    return planes.view(len(packed), spec.planes, spec.rows, spec.cols), scalars


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """The first `count` bits of each row of bytes (B, M), lowest first, as uint8 (B, count)."""
    if packed.device.type == "cpu" and not torch.compiler.is_compiling():
        return torch.from_numpy(np.unpackbits(packed.numpy(), axis=1, count=count, bitorder="little"))  # several times as fast there
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, :, None] >> shifts) & 1).flatten(1)[:, :count]
