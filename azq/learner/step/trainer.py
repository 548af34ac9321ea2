"""One training step: unpack on the device, turn by a symmetry, autocast forward, backward, AdamW, moving average.

Letters: B batch, P bytes of a packed observation, A actions, V values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from azq.config import LearnerConfig
from azq.errors import ConfigError, WeightsError
from azq.learner.data.batches import Batch
from azq.learner.step.compiling import compile_where_faster
from azq.learner.step.loss import Symmetries, Targets, all_losses, weighted
from azq.learner.step.optimizer import MATRICES, Ema, learning_rate, make_optimizer
from azq.learner.step.stepper import AVERAGE, Stepper
from azq.nets import NetSpec, Network, load_into, unpack, unpack_bits
from azq.nets.device import fastest_dtype
from azq.replay.samples import Samples

MAX_GRADIENT_NORM = 5.0  # networks without normalisation layers take a rare spike badly


@dataclass(frozen=True, slots=True)
class MeanLosses:
    """Means over the steps since they were last reset."""

    policy: float
    value: float
    steps: int
    others: dict[str, float] = field(default_factory=dict)  # by the name of the head


class Trainer(Stepper):
    """A network with its optimiser and its averaged copy.

    Raises ConfigError for a belief head together with symmetries: nothing says where a symmetry takes a hidden fact.
    """

    module: Any  # a Network, whose forward pass may be replaced by a compiled one

    def __init__(
        self, module: Network, spec: NetSpec, config: LearnerConfig, device: torch.device, symmetries: Symmetries | None = None
    ) -> None:
        super().__init__(device, config.micro_batch)
        self._spec = spec
        self._config = config
        self._dtype = autocast_dtype(config, device)
        if symmetries is not None and symmetries.count > 1 and "hidden" in module.auxiliary:
            raise ConfigError("network.auxiliary names 'hidden', whose facts have no symmetries; set learner.symmetries = false")
        self._symmetries = symmetries if symmetries is not None and symmetries.count > 1 else None
        self._may_compile = config.compile  # tried when the first batch is there
        # Channels last: what tensor cores take, and on CPUs 3 to 10 % faster.
        self.module = module.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
        if config.freeze == "trunk":
            self.module.freeze_trunk()
        self._ema = Ema(self.module, config.ema_decay)
        self._optimizer = make_optimizer(self.module, config)
        self.leave()
        self._names: tuple[str, ...] = ("policy", "value")
        self._sums = torch.zeros(len(self._names), device=device)
        self._summed = 0
        self.learning_rate = learning_rate(config, 0, 0.0)

    @property
    def averaged(self) -> nn.Module:
        return self._ema.module

    @property
    def precision(self) -> str:
        """Precision of forward passes."""
        return "bfloat16" if self._dtype is not None else "float32"

    @property
    def num_symmetries(self) -> int:
        """Symmetries to draw from for each sample; 1: the identity alone."""
        return self._symmetries.count if self._symmetries is not None else 1

    def train_on(self, batch: Batch, progress: float) -> None:
        self.learning_rate = learning_rate(self._config, self.step, progress)
        for group in self._optimizer.param_groups:
            group["lr"] = self.learning_rate * group.get(MATRICES, 1.0)
        if self._may_compile:
            self._may_compile = False
            self._notes["compile"] = compile_where_faster(self.module, len(batch), self._dtype, dynamic=self._config.ranks > 1)
        losses = self._gradients(batch)
        with self.phases("update"):
            nn.utils.clip_grad_norm_(self.module.parameters(), MAX_GRADIENT_NORM)
            self._optimizer.step()
        with self.phases("sync"):
            self.sync.after_step(self.step)
        with self.phases("update"):
            self._ema.update(self.module, self.step)
            self._add_up(losses)
        self.step += 1

    def mean_losses(self) -> MeanLosses:
        """Means since the last reset; raises `WeightsError` when training has diverged."""
        means = {name: float(total) / max(1, self._summed) for name, total in zip(self._names, self._sums.tolist(), strict=True)}
        if not np.isfinite(sum(means.values())):
            raise WeightsError(
                f"training diverged at step {self.step}: the loss is not finite; lower learner.learning_rate and start the learner again, "
                "it goes on from its newest checkpoint"
            )
        return MeanLosses(means.pop("policy"), means.pop("value"), self._summed, means)

    def reset_losses(self) -> None:
        self._sums.zero_()
        self._summed = 0

    def _modules(self) -> dict[str, nn.Module]:
        return {**super()._modules(), AVERAGE: self._ema.module}

    def load_weights(self, state: Mapping[str, Tensor], step: int) -> None:
        """Starts from published weights, with a fresh optimiser; raises `WeightsError` when they do not fit."""
        load_into(self.module, state)
        load_into(self._ema.module, state)
        self.step = step

    def _add_up(self, losses: dict[str, Tensor]) -> None:
        """Sums on the device: reading a loss each step would wait for it."""
        if self._names != tuple(losses):
            self._names = tuple(losses)
            self._sums = torch.zeros(len(losses), device=self.device)
        self._sums += torch.stack([loss.detach() for loss in losses.values()])
        self._summed += 1

    @property
    def _spread(self) -> bool:
        return self._config.value_scaling == "spread"

    def _total(self, losses: dict[str, Tensor]) -> Tensor:
        return weighted(losses, self._config.value_weight)

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        with self.phases("load"):
            planes, scalars = unpack(self._send(batch.samples.packed), self._spec)
            targets = self._targets(batch.samples)
            if self._symmetries is not None and batch.chosen is not None:
                chosen = self._send(batch.chosen).long()
                planes, targets = self._symmetries.planes(planes, chosen), self._turned(targets, chosen)
        with self.phases("forward"), self._autocast():
            outputs = self.sync.forward(planes, scalars)
        with self.phases("loss"):
            return all_losses(outputs, targets, self._spread)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=self._dtype, enabled=self._dtype is not None)

    def _targets(self, samples: Samples) -> Targets:
        hidden = None if samples.hidden is None else self._bits(samples.hidden, self._spec.num_hidden).float()
        return Targets(
            policies=self._send(samples.policies).float(),
            values=self._send(samples.values),
            legal=self._bits(samples.masks, self._spec.num_actions).view(torch.bool),
            played=None if samples.played is None else self._send(samples.played).long(),
            margin=None if samples.margin is None else self._send(samples.margin),
            outcomes=None if samples.outcomes is None else self._send(samples.outcomes),
            hidden=hidden,
        )

    def _turned(self, targets: Targets, chosen: Tensor) -> Targets:
        assert self._symmetries is not None
        turn = self._symmetries
        played = None if targets.played is None else turn.action(targets.played, chosen)
        return replace(targets, policies=turn.actions(targets.policies, chosen), legal=turn.actions(targets.legal, chosen), played=played)

    def _bits(self, packed: np.ndarray, count: int) -> Tensor:
        return unpack_bits(self._send(packed), count)

    def _send(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)


def autocast_dtype(config: LearnerConfig, device: torch.device) -> torch.dtype | None:
    """bfloat16 where it is asked for or faster; None for plain float32."""
    dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}.get(config.precision) or fastest_dtype(device)
    return dtype if dtype is torch.bfloat16 else None
