"""What ranks send of their gradients: all, halves of the precision, a low rank, or the largest. Hooks of DistributedDataParallel."""

# No `from __future__ import annotations`: torch compares the annotations of a communication hook with types, not with their names.
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from azq.config import RankSettings

POWER_SGD_AFTER = 10  # steps with whole gradients first, as its authors advise (Vogels et al., NeurIPS 2019)

Reduced = torch.futures.Future[Tensor]
Hook = Callable[[GradBucket], Reduced]


def hook_of(config: RankSettings) -> Hook:
    """The way to reduce a bucket of gradients to their mean over the ranks that the settings ask for."""
    if config.compression == "topk":
        return TopK(config.compression_ratio).reduce
    hook: Any
    state: Any = None
    if config.compression == "powersgd":
        hook = powerSGD_hook.powerSGD_hook
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=config.compression_rank, start_powerSGD_iter=POWER_SGD_AFTER)
    else:
        hook = default_hooks.fp16_compress_hook if config.compression == "fp16" else default_hooks.allreduce_hook
    return lambda bucket: hook(state, bucket)


class TopK:
    """Each rank sends the largest of its gradients, with their places, in `ratio` of the bytes of all of them.

    What was not sent is added to the next step's (error feedback: Stich et al., NeurIPS 2018), so that all of it counts in the end.
    """

    def __init__(self, ratio: float, *, feedback: bool = True) -> None:
        self._ratio = ratio
        self._feedback = feedback
        self._left: dict[tuple[int, ...], Tensor] = {}  # by a bucket's parameters, which are dealt out anew after the first step

    def reduce(self, bucket: GradBucket) -> Reduced:
        mine: Tensor = bucket.buffer()
        key = tuple(id(parameter) for parameter in bucket.parameters())
        if key in self._left:
            mine.add_(self._left[key])
        places = mine.abs().topk(sent_of(mine.numel(), self._ratio), sorted=False).indices
        said = torch.stack([mine[places], places.to(torch.int32).view(torch.float32)])  # a place travels as the bits of a number
        if self._feedback:
            self._left[key] = mine.index_fill(0, places, 0.0)
        heard = [torch.empty_like(said) for _ in range(dist.get_world_size())]
        work = dist.all_gather(heard, said, async_op=True)

        def mean(_: Reduced) -> Tensor:
            mine.zero_()
            for values, where in heard:
                mine.index_add_(0, where.view(torch.int32), values, alpha=1 / len(heard))
            return mine

        gathered: Reduced = work.get_future()
        return gathered.then(mean)


def sent_of(numbers: int, ratio: float) -> int:
    """How many of so many numbers are sent, each beside its place, which takes as many bytes."""
    return max(1, int(numbers * ratio / 2))
