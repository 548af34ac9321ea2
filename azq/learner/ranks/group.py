"""One epoch of ranks over `torch.distributed`: gloo for what the hosts tell each other and for CPUs, NCCL between GPUs. No pickle.

Every call raises `RuntimeError`, as torch does, when a member is gone or silent.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import secrets
import struct
from datetime import timedelta
from pathlib import Path

import msgspec
import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from azq.learner.burst import Burst, Timing
from azq.learner.ranks.rules import LOOPBACK

WORD_BYTES = 4096
_LENGTH = struct.Struct("<I")
_NAME = re.compile(r"[0-9a-f]{32}")


class Word(msgspec.Struct, frozen=True):
    """What rank 0 tells the others."""

    op: str  # "train", "idle", "state" or "leave"
    burst: Burst | None = None
    rows: tuple[int, ...] = ()  # of a step, by place in the group
    state_bytes: int = 0
    step: int = 0  # of the state


class Group:
    """The members of an epoch, this process among them; one at a time in a process."""

    def __init__(self, store: Store, epoch: int, place: int, size: int, device: torch.device, timeout_s: float) -> None:
        self.place, self.size = place, size
        self._buffer = torch.zeros(WORD_BYTES, dtype=torch.uint8)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        # A member that is silent: end the kernels that wait for it, and not, as by default, this process.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
        try:
            dist.init_process_group(
                backend,
                store=PrefixStore(str(epoch), store),
                rank=place,
                world_size=size,
                timeout=timedelta(seconds=timeout_s),
            )
        except RuntimeError:
            self.close()
            raise

    def tell(self, word: Word) -> None:
        """Rank 0's word to all others, each of which is to `hear` it."""
        data = msgspec.msgpack.encode(word)
        frame = _LENGTH.pack(len(data)) + data
        self._buffer[: len(frame)] = torch.frombuffer(bytearray(frame), dtype=torch.uint8)
        dist.broadcast(self._buffer, 0)

    def hear(self) -> Word:
        """The next word of rank 0."""
        dist.broadcast(self._buffer, 0)
        data = self._buffer.numpy().tobytes()
        (length,) = _LENGTH.unpack_from(data)
        return msgspec.msgpack.decode(data[_LENGTH.size : _LENGTH.size + length], type=Word)

    def meet(self) -> None:
        """Returns when every member's host has come here."""
        dist.all_reduce(torch.zeros(1))

    def gather(self, timing: Timing) -> list[Timing]:
        """What a burst cost each member."""
        ours = torch.tensor([timing.steps, timing.rows, timing.wall_s, timing.waited_s], dtype=torch.float64)
        table = [torch.empty_like(ours) for _ in range(self.size)]
        dist.all_gather(table, ours)
        return [Timing(int(steps), int(rows), wall_s, waited_s) for steps, rows, wall_s, waited_s in (row.tolist() for row in table)]

    def send_state(self, tensors: dict[str, Tensor], step: int) -> None:
        """Rank 0's tensors to all others, each of which is to `take_state` after the word."""
        data = safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        self.tell(Word("state", state_bytes=len(data), step=step))
        dist.broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), 0)

    def take_state(self, word: Word) -> dict[str, Tensor]:
        """The tensors that rank 0 sends."""
        data = torch.empty(word.state_bytes, dtype=torch.uint8)
        dist.broadcast(data, 0)
        return safetensors.torch.load(data.numpy().tobytes())

    def close(self) -> None:
        """Leaves; the others notice by the broken connections."""
        gc.collect()  # what reduced gradients may be held by cycles, and holds the connections
        if dist.is_initialized():
            group = dist.group.WORLD
            if group is not None and dist.get_backend(group) != "gloo":
                with contextlib.suppress(RuntimeError):
                    group.abort()  # kernels that wait for the dead would never end
            dist.destroy_process_group()


def open_store(folder: Path, host: str, size: int, *, timeout_s: float) -> tuple[Store, str]:
    """Rank 0's meeting place for `size` members and its name: a file that only this user's processes can open, and no port.

    Raises `RuntimeError` where the folder cannot be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        for left in folder.iterdir():  # of epochs whose members died
            left.unlink(missing_ok=True)  # its last member may take it away just now
    except OSError as error:
        raise RuntimeError(f"{folder}, where ranks meet, cannot be used: {error.strerror}; mend its rights") from None
    name = secrets.token_hex(16)
    return reach_store(folder, name, host, size, timeout_s=timeout_s), name


def reach_store(folder: Path, name: str, host: str, size: int, *, timeout_s: float) -> Store:
    """Another rank's way to the meeting place."""
    if not _NAME.fullmatch(name):
        raise RuntimeError(f"{name!r} names no meeting place of ranks")
    if host == LOOPBACK:
        _keep_to_loopback()
    store = FileStore(str(folder / name), size)
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


def _keep_to_loopback() -> None:
    if os.path.exists("/sys/class/net/lo"):
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")


def timeouts(rank_timeout_s: float, place: int) -> float:
    """Seconds that a member waits for the others: rank 0 drops who is late, the others bear with a rank 0 that saves or publishes."""
    return rank_timeout_s if place == 0 else 10 * rank_timeout_s
