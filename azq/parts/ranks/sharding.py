"""Weights, gradients, optimiser and average dealt out among the ranks, so that none of them holds all: FSDP2 of torch.

Fully sharded training (Rajbhandari et al., SC 2020: ZeRO, stage 3; Zhao et al., VLDB 2023: FSDP): the weights of a block are brought
together for its passes alone. Letters: N ranks; a tensor's part is its rows as `torch.chunk` cuts them in N, which may be none.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from azq.learner.step.stepper import Stepper, passed
from azq.nets import Network
from azq.parts.ranks.reducing import RankSync, Stopwatch


class Sharded(RankSync):
    """A trainer whose state is dealt out among the members of the group that this process is in; every member is to make one.

    It holds nothing of worth until `deal`. What a member that is gone held is lost with it.
    """

    may_retry = False  # the others wait within the same pass

    def __init__(self, trainer: Stepper, watch: Stopwatch) -> None:
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method  # a fifth of a learner's start, which few need

        plain = trainer.module
        super().__init__(twin(plain, lambda own: own.detach().to("meta")), watch)
        self._trainer, self._factor = trainer, 1.0
        self._place, self._size = dist.get_rank(), dist.get_world_size()
        self._sharded: Any = twin(plain, lambda own: own.detach().contiguous())
        world = dist.group.WORLD
        assert world is not None
        mesh = DeviceMesh.from_group(world, trainer.device.type)
        units: list[Any] = [*blocks_of(self._sharded), self._sharded]
        for unit in units:
            fully_shard(unit, mesh=mesh)
        self._sharded.set_reduce_scatter_unused_params(True)  # a head whose targets are in others' rows alone
        if isinstance(plain, Network):
            register_fsdp_forward_method(self._sharded, "forward_all")
        if trainer.device.type == "cpu":
            self._time_calls(units)
        self._dealt: dict[str, Any] = dict(self._sharded.named_parameters())  # each a `DTensor`
        names = {id(own): name for name, own in plain.named_parameters()}
        self._held = twin(plain, lambda own: self._dealt[names[id(own)]].to_local().detach())
        self._own = dict(self._held.named_parameters())
        trainer.exchange(self._sharded, self._held)

    def _time_calls(self, units: list[Any]) -> None:
        """Counts what this rank does for the others' sake; on GPUs that goes on beside its own work."""
        from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter

        watch = self._watch

        class Gathering(DefaultAllGather):
            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                return timed(watch, lambda: super(Gathering, self).__call__(*args, **kwargs))

        class Scattering(DefaultReduceScatter):
            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                return timed(watch, lambda: super(Scattering, self).__call__(*args, **kwargs))

        for unit in units:
            unit.set_custom_all_gather(Gathering())
            unit.set_custom_reduce_scatter(Scattering())

    def deal(self, whole: Mapping[str, Tensor], step: int) -> None:
        """Takes this rank's parts of rank 0's tensors, of which others have the shapes, one after the other."""
        mine: dict[str, Tensor] = {}
        for name, tensor in whole.items():
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype)
            if self._place == 0:
                buffer.copy_(tensor)
            dist.broadcast(buffer, 0)
            mine[name] = self._part(buffer).clone() if self._is_dealt(name, buffer) else buffer
        self._trainer.load_tensors(mine, step)

    def whole(self) -> Iterator[tuple[str, Tensor]]:
        """The trainer's tensors by name, put together at rank 0, and this rank's parts elsewhere; every member is to go through them."""
        full = {name: parameter.shape for name, parameter in self._module.named_parameters()}
        for name, tensor in self._trainer.tensors().items():
            parameter = name.partition("/")[2]
            own = tensor.detach().cpu()
            if parameter in self._own and own.dim() and own.shape == self._own[parameter].shape:
                yield name, self._together(own, full[parameter])
            else:
                yield name, own

    def _together(self, own: Tensor, shape: torch.Size) -> Tensor:
        rows = -(-shape[0] // self._size)
        padded = own.new_zeros((rows, *shape[1:]))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(self._size)] if self._place == 0 else None
        dist.gather(padded, parts)
        return torch.cat(parts)[: shape[0]] if parts else own

    def _is_dealt(self, name: str, whole: Tensor) -> bool:
        parameter = name.partition("/")[2]
        return parameter in self._own and self._dealt[parameter].shape == whole.shape

    def _part(self, whole: Tensor) -> Tensor:
        parts = torch.chunk(whole, self._size)
        return parts[self._place] if self._place < len(parts) else whole[:0]

    def end(self) -> None:
        """The trainer trains a whole module again, whose weights are anything: load them."""
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        # It holds the group, whose connections would outlive it, so that others wait for this rank in vain.
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
        device = self._trainer.device
        self._trainer.exchange(twin(self._module, lambda own: torch.empty_like(own, device=device)))

    def share(self, place: int, rows: tuple[int, ...]) -> None:
        self._factor = len(rows) * rows[place] / sum(rows)  # the mean over ranks is then that of the whole batch

    def part(self, *, last: bool) -> AbstractContextManager[None]:
        self._sharded.set_requires_gradient_sync(last)
        return nullcontext()

    def forward(self, *inputs: Tensor) -> Any:
        return passed(self._sharded, *inputs)

    def backward(self, loss: Tensor) -> None:
        (loss * self._factor).backward()  # type: ignore[no-untyped-call]
        for name, dealt in self._dealt.items():
            if dealt.grad is not None:  # of the last part
                self._own[name].grad, dealt.grad = dealt.grad.to_local(), None

    def clip(self, parameters: list[Tensor], most: float) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        square = torch.stack(torch._foreach_norm(gradients)).square().sum() if gradients else torch.zeros((), device=self._trainer.device)
        dist.all_reduce(square)
        torch._foreach_mul_(gradients, (most / (square.sqrt() + 1e-6)).clamp(max=1.0))


def twin(module: nn.Module, parameter: Callable[[nn.Parameter], Tensor]) -> Any:
    """A copy of a module, whose parameters are what `parameter` makes of the module's."""
    made = {id(own): nn.Parameter(parameter(own), requires_grad=own.requires_grad) for own in module.parameters()}
    return deepcopy(module, dict[int, Any](made))


def blocks_of(module: nn.Module) -> list[Any]:
    """What is brought together at once: the members of a module's own lists; all the rest are one more."""
    lists = [child for child in module.children() if isinstance(child, nn.ModuleList | nn.Sequential)]
    return [block for child in lists for block in child if any(True for _ in block.parameters())]


def timed(watch: Stopwatch, call: Callable[[], Any]) -> Any:
    watch.begin()
    try:
        return call()
    finally:
        watch.end()


def bytes_of(trainer: Stepper) -> int:
    """What weights, gradients, optimiser and average take in this process."""
    gradients = [parameter.grad for parameter in trainer.held.parameters() if parameter.grad is not None]
    return sum(tensor.nbytes for tensor in (*trainer.tensors().values(), *gradients))


Entry = tuple[str, torch.Size, torch.dtype, int]  # name, shape, type and place of a tensor


class SpareCopy:
    """Tensors in a file without a name, which is gone with the process, and not in memory, which they are dealt out to save."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder  # None: where temporary files are
        self._file: IO[bytes] | None = None
        self._entries: list[Entry] = []
        self.step = 0

    def write(self, tensors: Iterable[tuple[str, Tensor]], step: int) -> None:
        """Takes the place of the copy before, once it is whole. Raises `RuntimeError` where the disk takes no more."""
        with ExitStack() as stack:
            try:
                file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile(dir=self._folder, prefix="azq-ranks-"))
                entries: list[Entry] = []
                for name, tensor in tensors:
                    entries.append((name, tensor.shape, tensor.dtype, file.tell()))
                    file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
                file.flush()
            except OSError as error:
                where = self._folder or tempfile.gettempdir()
                raise RuntimeError(f"{where} takes no copy of what ranks hold: {error.strerror}; make room") from None
            self.close()
            self._file, self._entries, self.step = file, entries, step
            stack.pop_all()

    def read(self) -> dict[str, Tensor]:
        """The tensors, as long as they are used; the disk's own, so do not write to them."""
        if self._file is None:
            raise RuntimeError("nothing was dealt out yet")
        memory = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
        return {name: _tensor(memory, shape, kind, place) for name, shape, kind, place in self._entries}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _tensor(memory: mmap.mmap, shape: torch.Size, kind: torch.dtype, place: int) -> Tensor:
    numbers = shape.numel()
    if not numbers:
        return torch.empty(shape, dtype=kind)
    width = torch.empty(0, dtype=kind).element_size()
    return torch.frombuffer(memory, dtype=torch.uint8, count=numbers * width, offset=place).clone().view(kind).view(shape)
