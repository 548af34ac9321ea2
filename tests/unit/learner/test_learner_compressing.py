"""What ranks send of their gradients, in bytes and in what they learn by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from rank_processes import in_ranks
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from azq.config import LearnerConfig
from azq.learner.ranks.group import RankGroup
from azq.learner.ranks.reducing import POWER_SGD_AFTER, Hook, TopK, hook_of, sent_of

INPUTS, OUTPUTS = 48, 24
NUMBERS = INPUTS * OUTPUTS + OUTPUTS
STEPS, LATE = 300, POWER_SGD_AFTER + 10
PUSH = 4.0


class Counted:
    """Bytes that this process hands to torch to be sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = 0
        for name, position in (("all_reduce", 0), ("all_gather", 1)):
            monkeypatch.setattr(dist, name, self._counting(getattr(dist, name), position))

    def _counting(self, call: Any, position: int) -> Any:
        def counting(*arguments: Any, **options: Any) -> Any:
            self.sent += arguments[position].numel() * arguments[position].element_size()
            return call(*arguments, **options)

        return counting


def regression(hook: Hook, place: int, steps: int) -> tuple[float, int, np.ndarray]:
    """Loss of a linear regression on all rows after so many steps, over that before; bytes of one late step; weights.

    Each rank has a term of its own that the other has with the other sign: these gradients cancel over the ranks, and hide those that
    count where only the largest are sent and the rest is forgotten.
    """
    torch.manual_seed(5)
    truth, rows = torch.randn(INPUTS, OUTPUTS), torch.randn(256, INPUTS)
    module = nn.Linear(INPUTS, OUTPUTS)
    ddp = DistributedDataParallel(module, gradient_as_bucket_view=True)

    def annotated(_: object, bucket: Any) -> Any:
        return hook(bucket)

    annotated.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[torch.Tensor]}
    ddp.register_comm_hook(None, annotated)
    push = torch.zeros(OUTPUTS, INPUTS)
    push[:, : INPUTS // 4] = PUSH if place else -PUSH
    mine = slice(128 * place, 128 * place + 128)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    before, spent = loss_of(module(rows), rows @ truth), 0
    with pytest.MonkeyPatch.context() as patch:
        for step in range(steps):
            counted = Counted(patch) if step == LATE else None
            optimizer.zero_grad()
            (loss_of(ddp(rows[mine]), rows[mine] @ truth) + (module.weight * push).sum()).backward()
            optimizer.step()
            if counted is not None:
                spent = counted.sent
                patch.undo()
    return (loss_of(module(rows), rows @ truth) / before).item(), spent, module.weight.detach().numpy()


def loss_of(found: Tensor, wanted: Tensor) -> Tensor:
    return ((found - wanted) ** 2).sum(1).mean()


WAYS: dict[str, tuple[dict[str, Any], int]] = {  # settings -> bytes of a step
    "none": ({}, 4 * NUMBERS),
    "fp16": ({}, 2 * NUMBERS),
    "powersgd": ({"compression_rank": 1}, 4 * (INPUTS + OUTPUTS + OUTPUTS)),  # two factors of the matrix, and the bias whole
    "powersgd 4": ({"compression_rank": 4}, 4 * (4 * (INPUTS + OUTPUTS) + OUTPUTS)),
    "topk": ({"compression_ratio": 0.5}, 8 * sent_of(NUMBERS, 0.5)),
    "topk 0.1": ({"compression_ratio": 0.1}, 8 * sent_of(NUMBERS, 0.1)),
}


def hooks() -> list[Hook]:
    named = ({"compression": name.partition(" ")[0], **settings} for name, (settings, _) in WAYS.items())
    return [hook_of(LearnerConfig.model_validate(settings)) for settings in named]


def test_what_is_sent_of_gradients_is_as_stated_and_ranks_stay_equal():
    def body(group: RankGroup) -> list[tuple[float, int, np.ndarray]]:
        return [regression(hook, group.place, LATE + 1) for hook in hooks()]

    for (name, (_, stated)), (_, sent, weights), (_, _, others) in zip(WAYS.items(), *in_ranks(2, body), strict=True):
        assert sent == stated, name
        assert np.array_equal(weights, others), name


@pytest.mark.release
def test_every_compression_converges_and_the_largest_gradients_alone_do_not():
    def body(group: RankGroup) -> list[float]:
        return [regression(hook, group.place, STEPS)[0] for hook in [*hooks(), TopK(0.1, feedback=False).reduce]]

    *left, forgot = in_ranks(2, body, seconds=300.0)[0]
    print(dict(zip(WAYS, left, strict=True)), "without what was left out:", forgot)
    assert max(left) < 2e-2
    assert forgot > 10 * max(left)


@pytest.mark.parametrize(("numbers", "ratio", "sent"), [(1000, 0.1, 50), (1000, 1.0, 500), (3, 0.1, 1)])
def test_values_and_their_places_take_the_ratio_together(numbers, ratio, sent):
    assert sent_of(numbers, ratio) == sent
