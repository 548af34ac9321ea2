"""How a trainer trains beside others: where the forward pass runs, what backward waits for, what follows a step."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from azq.nets import Network, Outputs


class Sync(Protocol):
    """What a training step asks of those that it trains with; `Alone` is the double that asks nobody."""

    def forward(self, planes: Tensor, scalars: Tensor) -> Outputs:
        """Every head's output."""

    def backward(self, loss: Tensor) -> None:
        """Leaves the gradients of the whole batch, all ranks' shares, in the parameters."""

    def after_step(self, step: int) -> None:
        """Follows the optimiser's step number `step`, from 0."""

    def waited_s(self) -> float:
        """Seconds in which this rank did nothing but wait for others, since the last call."""


class Alone:
    """One rank."""

    def __init__(self, module: Network) -> None:
        self._module = module

    def forward(self, planes: Tensor, scalars: Tensor) -> Outputs:
        """Every head's output."""
        return self._module.forward_all(planes, scalars)

    def backward(self, loss: Tensor) -> None:
        """The batch's own gradients."""
        loss.backward()  # type: ignore[no-untyped-call]

    def after_step(self, step: int) -> None:
        """Nothing to do."""

    def waited_s(self) -> float:
        """0."""
        return 0.0
