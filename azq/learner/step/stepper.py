"""Training steps of any module: alone or with other ranks, in micro-batches that fit memory, with snapshots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from azq import logs
from azq.nets import Network, load_into
from azq.nets.device import device_mark, is_out_of_memory
from azq.phases import Phases

WEIGHTS, AVERAGE = "weights/", "ema/"  # what the names of a trainer's tensors begin with

log = logs.get(__name__)


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of a trainer's tensors whose names begin so, without that."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def passed(module: nn.Module, *inputs: Tensor) -> Any:
    """A module's outputs; of a network for games those of all heads, since torch reduces gradients for one forward pass."""
    return module.forward_all(*inputs) if isinstance(module, Network) else module(*inputs)


class Sync:
    """Synchronisation of a step with other ranks: none here; the base of those between ranks."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    may_retry = True  # whether a backward pass that failed leaves the others as they were

    def share(self, place: int, rows: tuple[int, ...]) -> None:
        """How the rows of a step are shared from now on."""

    def part(self, *, last: bool) -> AbstractContextManager[None]:
        """Around a part of this rank's rows: only with the last one's gradients do others hear of the sum."""
        return nullcontext()

    def forward(self, *inputs: Tensor) -> Any:
        """The module's outputs of this rank's rows."""
        return passed(self._module, *inputs)

    def backward(self, loss: Tensor) -> None:
        """Leaves the gradients of the whole batch, all ranks' shares, in the parameters."""
        loss.backward()  # type: ignore[no-untyped-call]

    def after_step(self, step: int) -> None:
        """Follows the optimiser's step number `step`, from 0."""

    def waited_s(self) -> float:
        """Seconds in which this rank did nothing but wait for others, since the last call."""
        return 0.0


class Rows(Protocol):
    """The rows of a batch."""

    def __len__(self) -> int: ...

    def parts(self, most: int) -> list[Self]:
        """Itself in as few parts as have at most `most` rows each, alike in size to a row; 0: in one."""


class Stepper(ABC):
    """A module with its optimiser, and how it takes steps."""

    module: nn.Module
    _optimizer: torch.optim.Optimizer

    def __init__(self, device: torch.device, micro_batch: int) -> None:
        self.device = device
        self.phases = Phases(make_event=device_mark if device.type == "cuda" else None)
        self.step = 0
        self.micro_batch = micro_batch  # most samples of one pass; less once the device had no memory for them; 0: all at once
        self.errors = 0  # of this device, survived
        self.on_new_shape: Callable[[], object] = lambda: None  # before passes of another size than those before
        self._notes: dict[str, str] = {}

    @abstractmethod
    def train_on(self, batch: Any, progress: float) -> None:
        """Takes one step on a batch; `progress` is the run's share behind."""

    @abstractmethod
    def _losses(self, part: Any) -> dict[str, Tensor]:
        """Means over a part of a batch, by name."""

    @abstractmethod
    def _total(self, losses: dict[str, Tensor]) -> Tensor:
        """The one loss whose gradients count."""

    @property
    def note(self) -> str:
        """A note for operators, such as a halved micro-batch."""
        return "; ".join(filter(None, self._notes.values()))

    def join(self, sync: Sync) -> None:
        """From now on trains with others."""
        self.sync = sync
        self._optimizer.zero_grad(set_to_none=True)

    def leave(self) -> None:
        """From now on trains alone."""
        self.join(Sync(self.module))

    def _modules(self) -> dict[str, nn.Module]:
        """The trained modules, by the prefix of their tensors' names."""
        return {WEIGHTS: self.module}

    def tensors(self) -> dict[str, Tensor]:
        """All that training changes by name, the optimiser's state too; not copied."""
        named = {prefix + name: tensor for prefix, module in self._modules().items() for name, tensor in module.state_dict().items()}
        for name, parameter in self.module.named_parameters():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if value is not None:
                    named[f"{key}/{name}"] = torch.as_tensor(value)
        return named

    @property
    def state_bytes(self) -> int:
        """Bytes of weights, gradients, optimiser and average in this process."""
        gradients = [parameter.grad for parameter in self.module.parameters() if parameter.grad is not None]
        return sum(tensor.nbytes for tensor in (*self.tensors().values(), *gradients))

    def load_tensors(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Loads the result of `tensors`; raises `WeightsError` naming the first tensor that does not fit the module."""
        for prefix, module in self._modules().items():
            load_into(module, under(prefix, tensors))
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        states: dict[str, dict[str, Tensor]] = {name: {} for name in names.values()}
        for key, _, name in (full.partition("/") for full in tensors):
            if name in states and f"{key}/" not in self._modules():
                states[name][key] = tensors[f"{key}/{name}"]
        for group in self._optimizer.param_groups:
            counts_on_host = not (group.get("fused") or group.get("capturable"))
            for parameter in group["params"]:
                if state := states[names[parameter]]:
                    self._optimizer.state[parameter] = {
                        key: value.clone() if key == "step" and counts_on_host else _beside(parameter, value)
                        for key, value in state.items()
                    }
        self.step = step

    def snapshot(self) -> tuple[dict[str, Tensor], int]:
        """A copy of everything that training changes, and the step."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors().items()}, self.step

    def restore(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Goes back to a snapshot, this trainer's own or another rank's."""
        self._optimizer.state.clear()
        self.load_tensors(tensors, step)

    def _gradients(self, batch: Rows) -> dict[str, Tensor]:
        """Leaves the gradients of a batch in the parameters, with passes as small as the device's memory asks for; the batch's losses."""
        while True:
            reason = ""
            try:
                return self._accumulated(batch)
            except (RuntimeError, MemoryError) as error:
                if not ran_short(error) or min(len(batch), self.micro_batch or len(batch)) == 1:
                    raise
                reason = str(error).partition("\n")[0][:200]
            self._halve(len(batch), reason)  # outside of the handler: an error holds the tensors that took the memory

    def _halve(self, rows: int, reason: str) -> None:
        self.micro_batch = min(rows, self.micro_batch or rows) // 2
        self.errors += 1
        self._notes["memory"] = f"out of memory: {self.micro_batch} samples a pass, batches as before"
        log.warning("micro_batch_halved", samples=self.micro_batch, of=rows, reason=reason)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.on_new_shape()
        if not self.sync.may_retry:
            raise RuntimeError(f"out of memory within a step of several ranks; the next one has {self.micro_batch} samples a pass")

    def _accumulated(self, batch: Rows) -> dict[str, Tensor]:
        """A pass for each part of a batch, whose gradients add up to the mean over the batch."""
        self._optimizer.zero_grad(set_to_none=True)
        parts, total = batch.parts(self.micro_batch), dict[str, Tensor]()
        for part in parts:
            with self.sync.part(last=part is parts[-1]):
                losses = self._losses(part)
                if len(parts) > 1:
                    losses = {name: loss * (len(part) / len(batch)) for name, loss in losses.items()}
                with self.phases("backward"):
                    self.sync.backward(self._total(losses))
            total = {name: loss.detach() + total[name] if total else loss.detach() for name, loss in losses.items()}
        return total


def ran_short(error: BaseException) -> bool:
    """Whether a pass ran out of memory; oneDNN's error may mean something else, which fails with a single sample, too."""
    return is_out_of_memory(error) or "could not create a primitive" in str(error)


def _beside(parameter: Tensor, moment: Tensor) -> Tensor:
    """An optimiser's state on the device of its parameter, in the order of its memory, as the fused kernels read it; a copy."""
    empty = torch.empty_like(parameter) if moment.shape == parameter.shape else torch.empty_like(moment, device=parameter.device)
    return empty.copy_(moment)
