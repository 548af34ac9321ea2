"""One training step: unpack on the device, turn by a symmetry, autocast forward, backward, AdamW, moving average.

Letters: B batch, P bytes of a packed observation, A actions, V values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from azq.config import LearnerConfig
from azq.errors import WeightsError
from azq.learner.device import autocast_dtype
from azq.learner.ema import Ema
from azq.learner.loss import losses
from azq.learner.schedule import learning_rate
from azq.learner.symmetry import Symmetries
from azq.nets import NetSpec, load_into, unpack
from azq.replay.samples import Samples

MAX_GRADIENT_NORM = 5.0  # networks without normalisation layers take a rare spike badly


@dataclass(frozen=True, slots=True)
class MeanLosses:
    """Means over the steps since they were last reset."""

    policy: float
    value: float
    steps: int


class Trainer:
    """A network with its optimiser and its averaged copy."""

    def __init__(
        self, module: nn.Module, spec: NetSpec, config: LearnerConfig, device: torch.device, symmetries: Symmetries | None = None
    ) -> None:
        self._module = module.to(device).train()
        self._spec = spec
        self._config = config
        self._device = device
        self._dtype = autocast_dtype(config, device)
        self._symmetries = symmetries if symmetries is not None and symmetries.count > 1 else None
        self._ema = Ema(self._module, config.ema_decay)
        self._optimizer = _optimizer(self._module, config)
        self._sums = torch.zeros(2, device=device)
        self._summed = 0
        self.step = 0
        self.learning_rate = learning_rate(config, 0, 0.0)

    @property
    def averaged(self) -> nn.Module:
        """The module that is published."""
        return self._ema.module

    @property
    def precision(self) -> str:
        """What forward passes compute in."""
        return "bfloat16" if self._dtype is not None else "float32"

    def train(self, samples: Samples, rng: np.random.Generator, progress: float) -> None:
        """Takes one step on a batch; `rng` draws its symmetries, `progress` is the run's share behind."""
        self.learning_rate = learning_rate(self._config, self.step, progress)
        for group in self._optimizer.param_groups:
            group["lr"] = self.learning_rate
        policy_loss, value_loss = self._losses(samples, rng)
        self._optimizer.zero_grad(set_to_none=True)
        (policy_loss + self._config.value_weight * value_loss).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._module.parameters(), MAX_GRADIENT_NORM)
        self._optimizer.step()
        self._ema.update(self._module, self.step)
        self._sums += torch.stack((policy_loss.detach(), value_loss.detach()))
        self._summed += 1
        self.step += 1

    def mean_losses(self) -> MeanLosses:
        """Means since the last reset; raises `WeightsError` when training has diverged."""
        policy, value = (float(total) / max(1, self._summed) for total in self._sums.tolist())
        if not np.isfinite(policy + value):
            raise WeightsError(
                f"training diverged at step {self.step}: the loss is not finite; lower learner.learning_rate and start the learner again, "
                "it goes on from its newest checkpoint"
            )
        return MeanLosses(policy, value, self._summed)

    def reset_losses(self) -> None:
        """Starts new means."""
        self._sums.zero_()
        self._summed = 0

    def tensors(self) -> dict[str, Tensor]:
        """Weights, averaged weights and optimiser state by name; not copied."""
        named = {f"weights/{name}": tensor for name, tensor in self._module.state_dict().items()}
        named |= {f"ema/{name}": tensor for name, tensor in self._ema.module.state_dict().items()}
        for name, parameter in self._module.named_parameters():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                named[f"{key}/{name}"] = torch.as_tensor(value)
        return named

    def load_tensors(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Takes over what `tensors` returned; raises `WeightsError` naming the first tensor that does not fit this network."""
        load_into(self._module, _under("weights/", tensors))
        load_into(self._ema.module, _under("ema/", tensors))
        for name, parameter in self._module.named_parameters():
            state = {key: tensors[f"{key}/{name}"] for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}/{name}" in tensors}
            if state:
                self._optimizer.state[parameter] = {key: value.to(self._device) for key, value in state.items()}
        self.step = step

    def load_weights(self, state: Mapping[str, Tensor], step: int) -> None:
        """Starts from published weights, with a fresh optimiser; raises `WeightsError` when they do not fit."""
        load_into(self._module, state)
        load_into(self._ema.module, state)
        self.step = step

    def _losses(self, samples: Samples, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        planes, scalars = unpack(self._send(samples.packed), self._spec)
        policies = self._send(samples.policies).float()
        legal = self._send(np.unpackbits(samples.masks, axis=1, count=policies.shape[1], bitorder="little")).bool()
        if self._symmetries is not None:
            chosen = self._send(rng.integers(0, self._symmetries.count, len(samples)))
            planes = self._symmetries.planes(planes, chosen)
            policies, legal = self._symmetries.actions(policies, chosen), self._symmetries.actions(legal, chosen)
        with torch.autocast(self._device.type, dtype=self._dtype, enabled=self._dtype is not None):
            logits, values = self._module(planes, scalars)
        return losses(logits, values, policies, self._send(samples.values), legal)

    def _send(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)


def _optimizer(module: nn.Module, config: LearnerConfig) -> torch.optim.AdamW:
    parameters = list(module.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=config.learning_rate, fused=fused)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
