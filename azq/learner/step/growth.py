"""The networks a run goes through, each saying at first what the smaller one said (Chen et al., ICLR 2016: Net2Net, by zeros, not copies).

Pure functions. Deeper: a new residual block ends in a layer of zeros, so it passes on what it is given. Wider: whatever reads the new
channels on behalf of an old one weighs them with zero, while the weights that make the new channels are random, so that gradients tell
them apart. Norms of attention layers see all channels at once, so such networks only grow by blocks (`azq.config` refuses the rest).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from azq.config import NetworkConfig, NetworkStage, RunSections
from azq.nets import NetSpec, Network, build

WEIGHTS, AVERAGE = "weights/", "ema/"


@dataclass(frozen=True, slots=True)
class RunNetworks:
    """The networks that a run of these settings goes through, to be found again and made anew."""

    sections: RunSections
    spec: NetSpec

    @property
    def all(self) -> list[NetworkConfig]:
        """The first one first."""
        first, stages = self.sections.network, self.sections.learner.growth
        return [first, *(first.model_copy(update={"blocks": stage.blocks, "channels": stage.channels}) for stage in stages)]

    def make(self, network: NetworkConfig) -> Network:
        return build(network, self.spec, seed=self.sections.run.seed)

    def described(self, description: Mapping[str, Any]) -> NetworkConfig:
        """The one that a checkpoint or weights describe, else the first: what does not fit is named by whoever loads the tensors."""
        return next((one for one in self.all if one.description() == description), self.sections.network)

    def fitting(self, tensors: Mapping[str, Tensor], module: Network) -> Network:
        """The network that the tensors of another rank's trainer are of: `module`, or a fresh one; `module` too where the run has none."""
        wanted = _shapes(under(WEIGHTS, tensors))
        candidates = itertools.chain([module], map(self.make, self.all))
        return next((one for one in candidates if _shapes(one.state_dict()) == wanted), module)

    def at(self, network: NetworkConfig, progress: float, samples: int = 0) -> NetworkConfig:
        """What `network` has grown to at this share of the run's horizon, after so many samples; nothing ever gets smaller."""
        begun = (stage for stage in self.sections.learner.growth if stage.begun(progress, samples))
        sizes: list[NetworkConfig | NetworkStage] = [network, *begun]
        return network.model_copy(update={"blocks": max(size.blocks for size in sizes), "channels": max(size.channels for size in sizes)})


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of a trainer's tensors whose names begin so, without that."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def grow(state: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of the larger network: `state` of the smaller one inside `fresh`, a freshly initialised larger one."""
    return {name: widen(state[name], tensor) if name in state else tensor.clone() for name, tensor in fresh.items()}


def widen(old: Tensor, fresh: Tensor) -> Tensor:
    """`old` in the corner of `fresh`, zeros where an old row (dimension 0: outputs) meets a new column (dimension 1: inputs)."""
    wide = fresh.to(old.device, old.dtype, copy=True)
    wide[: len(old)] = 0
    wide[_corner(old)] = old
    return wide


def grow_tensors(tensors: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All that a trainer holds, for the larger network: weights, their average, and the optimiser's moments.

    The average gets the same new weights, so that it too says what it said. New entries start without momentum and with the mean of the
    old second moments: with zeros in their place, the first steps would be three times the learning rate.
    """
    grown: dict[str, Tensor] = {}
    for prefix in (WEIGHTS, AVERAGE):
        grown |= {prefix + name: tensor for name, tensor in grow(under(prefix, tensors), fresh).items()}
    for name, tensor in tensors.items():
        kind, _, parameter = name.partition("/")
        if kind == "step":
            grown[name] = tensor
        elif kind in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
            filled = float(tensor.mean()) if kind == "exp_avg_sq" else 0.0
            grown[name] = _padded(tensor, fresh[parameter].shape, filled)
    return grown


def _padded(old: Tensor, shape: torch.Size, filled: float) -> Tensor:
    wide = torch.full(shape, filled, dtype=old.dtype, device=old.device)
    wide[_corner(old)] = old
    return wide


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}


def _corner(old: Tensor) -> tuple[slice, ...]:
    return tuple(slice(size) for size in old.shape)
