"""Training steps of several ranks: gradients reduced each step, on GPUs while backward still runs, or weights averaged every few steps."""

# No `from __future__ import annotations`: torch compares the annotations of a communication hook with types, not with their names.

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from azq.config import RankSettings
from azq.learner.rounds import Batches, RoundTiming, TrainingRound, run_round
from azq.learner.step.stepper import Stepper, Sync, passed
from azq.nets.device import device_mark
from azq.parts.ranks.group import RankGroup
from azq.phases import DeviceEvent

Reduced = torch.futures.Future[Tensor]
Hook = Callable[[GradBucket], Reduced]


class HostMark:
    """A mark where a call returns when its work is done: the host's clock tells."""

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """At once."""

    def elapsed_time(self, end: Any) -> float:
        return 1e3 * (float(end.at_s) - self.at_s)


class Stopwatch:
    """Adds up the time between `begin` and `end`; `begin` again before an `end` starts over."""

    def __init__(self, device: torch.device) -> None:
        self._make_mark: Callable[[], DeviceEvent] = device_mark if device.type == "cuda" else HostMark
        self._begun: DeviceEvent | None = None
        self._pairs: list[tuple[DeviceEvent, DeviceEvent]] = []

    def begin(self) -> None:
        self._begun = self._marked()

    def end(self) -> None:
        if self._begun is not None:
            self._pairs.append((self._begun, self._marked()))
            self._begun = None

    def taken_s(self) -> float:
        """Seconds since the last call; waits for the device."""
        if self._pairs:
            self._pairs[-1][1].synchronize()
        pairs, self._pairs = self._pairs, []
        return sum(begun.elapsed_time(ended) for begun, ended in pairs) / 1e3

    def _marked(self) -> DeviceEvent:
        mark = self._make_mark()
        mark.record()
        return mark


# Buffers are the same on all ranks; before 2.13 torch had another word for not sending them.
_QUIET: dict[str, Any] = {
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel.__init__).parameters
    else "broadcast_buffers": False
}


class _Passed(nn.Module):
    """A module whose forward pass is `passed`, since that is the one torch reduces gradients for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Any:
        return passed(self.module, *inputs)


class RankSync(Sync):
    """A `Sync` between ranks; its watch counts the seconds between a rank's last gradient and the others'."""

    def __init__(self, module: nn.Module, watch: Stopwatch) -> None:
        super().__init__(module)
        self._watch = watch

    def waited_s(self) -> float:
        return self._watch.taken_s()


class Reducing(RankSync):
    """Gradients of the whole batch each step (Li et al., VLDB 2020), compressed where asked.

    Losses are means over a rank's rows, so each counts by its share of the rows; the mean over ranks is then that of the whole batch.
    """

    may_retry = False  # some buckets may be on their way

    def __init__(self, module: nn.Module, hook: Hook, watch: Stopwatch) -> None:
        super().__init__(module, watch)
        self._factor = 1.0
        self._ddp = DistributedDataParallel(_Passed(module), gradient_as_bucket_view=True, **_QUIET)

        def marked(_: object, bucket: GradBucket) -> Reduced:
            watch.begin()  # the last bucket's counts: from there on this rank only waits
            return hook(bucket)

        self._ddp.register_comm_hook(None, marked)

    def share(self, place: int, rows: tuple[int, ...]) -> None:
        self._factor = len(rows) * rows[place] / sum(rows)

    def part(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self._ddp.no_sync()

    def forward(self, *inputs: Tensor) -> Any:
        return self._ddp(*inputs)

    def backward(self, loss: Tensor) -> None:
        (loss * self._factor).backward()  # type: ignore[no-untyped-call]
        self._watch.end()


class Averaging(RankSync):
    """Each rank steps by its own gradients; every `every` steps weights are averaged, by rows (local SGD: Stich, ICLR 2019)."""

    def __init__(self, module: nn.Module, every: int, watch: Stopwatch) -> None:
        super().__init__(module, watch)
        self._every = every
        self._share = 1.0  # of a step's rows

    def share(self, place: int, rows: tuple[int, ...]) -> None:
        self._share = rows[place] / sum(rows)

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        if (step + 1) % self._every:
            return
        ours = list(self._module.parameters())
        flat = torch.cat([parameter.reshape(-1) for parameter in ours]) * self._share  # whatever the order of their memory
        self._watch.begin()
        dist.all_reduce(flat)
        self._watch.end()
        for parameter, averaged in zip(ours, torch.split(flat, [parameter.numel() for parameter in ours]), strict=True):
            parameter.copy_(averaged.view_as(parameter))


def hook_of(config: RankSettings) -> Hook:
    """The way to reduce a bucket of gradients to their mean over the ranks that the settings ask for."""
    if config.compression == "topk":
        return TopK(config.compression_ratio).reduce
    hook: Any = default_hooks.fp16_compress_hook if config.compression == "fp16" else default_hooks.allreduce_hook
    return lambda bucket: hook(None, bucket)


class TopK:
    """Each rank sends the largest of its gradients, with their places, in `ratio` of the bytes of all of them.

    What was not sent is added to the next step's (error feedback: Stich et al., NeurIPS 2018), so that all of it counts in the end.
    """

    def __init__(self, ratio: float, *, feedback: bool = True) -> None:
        self._ratio = ratio
        self._feedback = feedback
        self._left: dict[tuple[int, ...], Tensor] = {}  # by a bucket's parameters, which are dealt out again after the first step

    def reduce(self, bucket: GradBucket) -> Reduced:
        mine: Tensor = bucket.buffer()
        key = tuple(id(parameter) for parameter in bucket.parameters())
        if key in self._left:
            mine.add_(self._left[key])
        places = mine.abs().topk(sent_of(mine.numel(), self._ratio), sorted=False).indices
        sent = torch.stack([mine[places], places.to(torch.int32).view(torch.float32)])  # a place travels as the bits of a number
        if self._feedback:
            self._left[key] = mine.index_fill(0, places, 0.0)
        received = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
        work = dist.all_gather(received, sent, async_op=True)

        def mean(_: Reduced) -> Tensor:
            mine.zero_()
            for values, where in received:
                mine.index_add_(0, where.view(torch.int32), values, alpha=1 / len(received))
            return mine

        gathered: Reduced = work.get_future()
        return gathered.then(mean)


def sent_of(numbers: int, ratio: float) -> int:
    """How many numbers are sent, each with its index, which takes as many bytes."""
    return max(1, int(numbers * ratio / 2))


def sync_of(module: nn.Module, config: RankSettings, device: torch.device) -> Sync:
    """The synchronisation of the process group's members; every member calls it."""
    if config.sync_every > 1:
        return Averaging(module, config.sync_every, Stopwatch(device))
    return Reducing(module, hook_of(config), Stopwatch(device))


def train_together(group: RankGroup, trainer: Stepper, feed: Batches, planned: TrainingRound, order: Any) -> list[RoundTiming]:
    """Takes a round's steps with the group; returns each member's timing, by place."""
    watch = Stopwatch(trainer.device)
    watch.begin()
    run_round(trainer, feed, planned, order)
    watch.end()
    # Before this rank waits for its device: where every host has queued its work, no device waits for a rank that is gone.
    group.meet()
    waited_s = trainer.sync.waited_s()
    trainer.phases.move("backward", "sync", waited_s)
    timings = group.gather(RoundTiming(planned.steps, order.rows, watch.taken_s(), waited_s))
    group.trained(timings)
    return timings
