"""One epoch of ranks over `torch.distributed`: gloo for commands and CPUs, NCCL between GPUs. No pickle.

Every call raises `RuntimeError`, as torch does, when a member is gone or silent.
"""

from __future__ import annotations

import contextlib
import gc
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store

from azq.bus.base import Bus
from azq.errors import BrokerError, EvaluationTimeout
from azq.learner.rounds import RoundTiming, TrainingRound
from azq.parts.ranks.rules import LOOPBACK
from azq.process.liveness import TIMES
from azq.process.network import interface_towards
from azq.waiting import until
from azq.wire import keys

T = TypeVar("T")

COMMAND_BYTES = 4096
LATELY = 16  # rounds
START_S = 120.0  # that members of a new epoch wait for each other: kernels are loaded or compiled, and NCCL connects, at the first use
_LENGTH = struct.Struct("<I")
RENDEZVOUS_LIFE_S = 300.0  # of the addresses that members leave there
RENDEZVOUS_POLL_S = 0.02


class Command(msgspec.Struct, frozen=True):
    """A command of rank 0 to the others."""

    op: str  # "train", "idle", "state" or "leave"
    planned: TrainingRound | None = msgspec.field(default=None, name="burst")  # its name between ranks since the first azq
    rows: tuple[int, ...] = ()  # of a step, by place in the group
    state_bytes: int = 0
    step: int = 0  # of the state


class RankGroup:
    """The members of an epoch, this process among them; one at a time in a process.

    Their timeout is `START_S` until they have trained once, then `patience_s`.
    """

    def __init__(self, store: Store, epoch: int, place: int, size: int, device: torch.device, timeout_s: float) -> None:
        self.place, self.size = place, size
        self._timeout_s = timeout_s
        self._lately: deque[float] = deque(maxlen=LATELY)
        self.patience_s = max(patience_s(timeout_s, 0.0, place), START_S)
        self.has_trained = False
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        # A member that is silent: end the kernels that wait for it, and not, as by default, this process.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
        try:
            dist.init_process_group(
                backend,
                store=PrefixStore(str(epoch), store),
                rank=place,
                world_size=size,
                timeout=timedelta(seconds=self.patience_s),
                device_id=device if device.type == "cuda" else None,  # NCCL connects now, and where it cannot says so now
            )
        except RuntimeError:
            self.close()
            raise

    def send(self, command: Command) -> None:
        """Sends a command of rank 0 to all others, each of which is to `receive` it."""
        _broadcast(msgspec.msgpack.encode(command))

    def receive(self) -> Command:
        return msgspec.msgpack.decode(_broadcast(), type=Command)

    def meet(self) -> None:
        """Waits for every member: a barrier."""
        dist.all_reduce(torch.zeros(1))

    def trained(self, timings: Iterable[RoundTiming] = ()) -> None:
        """Adapts the timeout to a round's timings; those of the first round do not count, for kernels were loaded."""
        if self.has_trained:
            self._lately.append(max((timing.own_s / max(1, timing.steps) for timing in timings), default=0.0))
        self.has_trained = True
        patience = patience_s(self._timeout_s, self.longest_s, self.place)
        if patience != self.patience_s:
            self.patience_s = patience
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=patience))

    @property
    def longest_s(self) -> float:
        """Seconds that a step of any member lately took at the longest, waiting for others left out."""
        return max(self._lately, default=0.0)

    def gather(self, timing: RoundTiming) -> list[RoundTiming]:
        ours = torch.tensor([timing.steps, timing.rows, timing.wall_s, timing.waited_s], dtype=torch.float64)
        table = [torch.empty_like(ours) for _ in range(self.size)]
        dist.all_gather(table, ours)
        return [RoundTiming(int(steps), int(rows), wall_s, waited_s) for steps, rows, wall_s, waited_s in (row.tolist() for row in table)]

    def send_state(self, tensors: dict[str, Tensor], step: int) -> None:
        """Rank 0's tensors to all others, each of which is to `take_state` after the command."""
        # Copies, for two names may stand for one tensor, as where two layers share their weights.
        data = safetensors.torch.save(
            {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
        )
        self.send(Command("state", state_bytes=len(data), step=step))
        dist.broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), 0)

    def take_state(self, command: Command) -> dict[str, Tensor]:
        data = torch.empty(command.state_bytes, dtype=torch.uint8)
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


def _broadcast(sent: bytes = b"") -> bytes:
    """Rank 0's bytes, at every rank."""
    buffer = torch.zeros(COMMAND_BYTES, dtype=torch.uint8)
    if dist.get_rank() == 0:
        frame = _LENGTH.pack(len(sent)) + sent
        buffer[: len(frame)] = torch.frombuffer(bytearray(frame), dtype=torch.uint8)
    dist.broadcast(buffer, 0)
    received = buffer.numpy().tobytes()
    (length,) = _LENGTH.unpack_from(received)
    return received[_LENGTH.size : _LENGTH.size + length]


class Rendezvous(Store):
    """A store of torch in the control plane, by which ranks find each other. Raises `RuntimeError`, as torch's stores do."""

    def __init__(self, bus: Bus, run: str, name: str, timeout_s: float) -> None:
        super().__init__()
        self._bus = bus
        self._run, self._name = run, name
        self._timeout_s = timeout_s

    def set(self, key: str, value: Any) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._call(lambda: self._bus.put(self._key(key), data, life_s=RENDEZVOUS_LIFE_S))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._call(lambda: self._bus.get(self._key(key))) or b""

    def check(self, names: Sequence[str]) -> bool:
        values = self._call(lambda: self._bus.get_each([self._key(name) for name in names]))
        return all(value is not None for value in values)

    def wait(self, names: Sequence[str], timeout: timedelta | None = None) -> None:
        within_s = timeout.total_seconds() if timeout else self._timeout_s
        try:
            until(lambda: self.check(names), f"ranks did not meet in time: no rank wrote {names[0]}", within_s, every_s=RENDEZVOUS_POLL_S)
        except EvaluationTimeout as error:
            raise RuntimeError(str(error)) from None

    def delete_key(self, key: str) -> bool:
        self._call(lambda: self._bus.delete(self._key(key)))
        return True

    def _key(self, key: str) -> str:
        return keys.meeting(self._run, f"{self._name}/{key}")

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except BrokerError as error:
            raise RuntimeError(str(error)) from error


def listen_towards(host: str) -> None:
    """Sets the interface for gloo and NCCL to the one that leads to rank 0's host, unless the environment names one.

    By default gloo listens at the address of this host's name, often loopback.
    """
    loopback = "lo" if os.path.exists("/sys/class/net/lo") else ""
    if interface := loopback if host == LOOPBACK else interface_towards(host):
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", interface)


def patience_s(rank_timeout_s: float, longest_s: float, place: int) -> float:
    """Timeout in seconds of a member's collectives, by the longest recent step; rank 0 drops late members, so the others wait longer."""
    return max(rank_timeout_s, TIMES * longest_s) * (1 if place == 0 else 10)
