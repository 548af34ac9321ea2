"""Gradients summed in memory that the ranks of one host share. gloo says when they are there; its own way to carry them, TCP over
loopback, costs each rank about ten times the work.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from azq.learner.ranks.stopwatch import Stopwatch
from azq.nets import Network, Outputs

SHARED_FOLDER = "/dev/shm"
_MARK_BYTES = 16  # in front of the gradients: says that a file of this name is the one that was meant
_PATH_BYTES = 512


def shared_memory(numbers: int) -> Tensor | None:
    """float32 (2, ranks, numbers) that all ranks of the process group see; None, for all of them, where one cannot.

    They need not tell each other where they run: rank 0 makes a file, and whoever finds its mark in it is on the same host. The name is
    gone when this returns, so nothing is left behind whatever dies. Raises `RuntimeError` when a member is gone.
    """
    size = 2 * dist.get_world_size() * numbers * 4 + _MARK_BYTES
    path, memory = _made(size) if dist.get_rank() == 0 else ("", None)
    try:
        said = _told(path, bytes(memory[:_MARK_BYTES]) if memory is not None else b"")
        if dist.get_rank():
            memory = _opened(*said, size)
        votes = torch.tensor([float(memory is not None)])
        dist.all_reduce(votes, op=dist.ReduceOp.MIN)
    finally:
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)
    if memory is None or not votes.item():
        return None
    return torch.frombuffer(memory, dtype=torch.float32, offset=_MARK_BYTES).view(2, dist.get_world_size(), numbers)


def _made(size: int) -> tuple[str, mmap.mmap | None]:
    path = ""
    try:
        folder = SHARED_FOLDER if os.path.isdir(SHARED_FOLDER) else None
        file, path = tempfile.mkstemp(prefix="azq-ranks-", dir=folder)
        try:
            os.posix_fallocate(file, 0, size)  # a full memory says so here, and kills nobody later
            memory = mmap.mmap(file, size)
        finally:
            os.close(file)
    except (OSError, AttributeError):  # no room, or a system without that call
        return path, None
    memory[:_MARK_BYTES] = secrets.token_bytes(_MARK_BYTES)
    return path, memory


def _told(path: str, mark: bytes) -> tuple[str, bytes]:
    """Rank 0's path and mark, at every rank."""
    data = torch.zeros(_PATH_BYTES, dtype=torch.uint8)
    sent = mark + os.fsencode(path) if mark and len(path) < _PATH_BYTES - _MARK_BYTES else b""
    data[: len(sent)] = torch.frombuffer(bytearray(sent), dtype=torch.uint8) if sent else data[:0]
    dist.broadcast(data, 0)
    heard = data.numpy().tobytes()
    return os.fsdecode(heard[_MARK_BYTES:].rstrip(b"\0")), heard[:_MARK_BYTES]


def _opened(path: str, mark: bytes, size: int) -> mmap.mmap | None:
    if not path:
        return None
    try:
        with Path(path).open("r+b") as file:
            memory = mmap.mmap(file.fileno(), size)
    except (OSError, ValueError):  # not here, not ours, or another's of the same name
        return None
    return memory if memory[:_MARK_BYTES] == mark else None


class HostReducing:
    """Gradients of the whole batch each step, through `memory` as `shared_memory` gives it: a `Sync` for the ranks of one host.

    The halves of the memory take turns: who writes the one has seen all others come to the meeting behind their last look at it.
    """

    def __init__(self, module: Network, memory: Tensor, watch: Stopwatch) -> None:
        self._module = module
        self._parameters = list(module.parameters())
        self._memory = memory
        self._watch = watch
        self._place = dist.get_rank()
        self._share = 1.0
        self._turn = 0
        self._sums = torch.zeros(memory.shape[2])
        self._parts = torch.split(self._sums, [parameter.numel() for parameter in self._parameters])
        self._meeting = torch.zeros(1)

    def share(self, place: int, rows: tuple[int, ...]) -> None:
        """How the rows of a step are shared from now on."""
        self._share = rows[place] / sum(rows)

    def forward(self, planes: Tensor, scalars: Tensor) -> Outputs:
        """Every head's output."""
        return self._module.forward_all(planes, scalars)

    def backward(self, loss: Tensor) -> None:
        """Leaves the whole batch's gradients in the parameters; the same bits in every rank."""
        (loss * self._share).backward()  # type: ignore[no-untyped-call]
        slots = self._memory[self._turn]
        self._turn = 1 - self._turn
        gradients = [_gradient(parameter) for parameter in self._parameters]
        torch.cat([gradient.flatten() for gradient in gradients], out=slots[self._place])
        self._watch.begin()
        dist.all_reduce(self._meeting)
        self._watch.end()
        torch.sum(slots, 0, out=self._sums)
        for gradient, part in zip(gradients, self._parts, strict=True):
            gradient.copy_(part.view_as(gradient))  # where it is: the optimizer wants gradients in the order of the weights' memory

    def after_step(self, step: int) -> None:
        """Nothing to do: all ranks took the same step."""

    def waited_s(self) -> float:
        """Seconds between a rank's last gradient and the others', since the last call."""
        return self._watch.taken_s()


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:  # nothing of this loss depends on it
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
