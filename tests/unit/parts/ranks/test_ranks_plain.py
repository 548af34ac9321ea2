"""Modules that are no game: alone, on two ranks beside one, without memory, and where optimisers keep what they keep."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from memory_broker import MemoryBus
from rank_processes import in_ranks
from torch import Tensor, nn

from azq.config import RankSettings
from azq.errors import ConfigError, EvaluationTimeout
from azq.learner.rounds import TrainingRound
from azq.parts import ranks
from azq.parts.ranks.follower import Follower
from azq.parts.ranks.group import RankGroup
from azq.parts.ranks.plain import RUN, PlainTraining, PlainWork, TensorRows
from azq.parts.ranks.reducing import sync_of, train_together
from azq.parts.ranks.rules import RankPlace
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import RankTable

CPU = torch.device("cpu")
ROWS = 24
TOLERANCE = 2e-6  # sums in another order


class Tied(nn.Module):
    """Two layers that share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(torch.tanh(self.first(inputs)))
        return outputs


def draw(step: int, rows: slice) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(step))[rows]
    return inputs, inputs.flip(1)


def squared(model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    return (model(inputs) - targets).square().mean()


def trainer_of(kind: str = "adamw", **options: Any) -> ranks.ModuleTrainer:
    torch.manual_seed(3)
    module = Tied()
    optimizer: torch.optim.Optimizer
    if kind == "sgd":
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    return ranks.ModuleTrainer(module, optimizer, options.pop("loss", squared), draw, **options)


def training_of(trainer: ranks.ModuleTrainer, bus: MemoryBus) -> PlainTraining:
    return PlainTraining(trainer, bus, RankPlace(0, 2), ROWS, RUN, RankSettings())


def numbers(trainer: ranks.ModuleTrainer) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in trainer.tensors().items()}


def alone(trainer: ranks.ModuleTrainer, steps: int) -> dict[str, np.ndarray]:
    assert training_of(trainer, MemoryBus()).step(steps) == steps
    return numbers(trainer)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_two_ranks_equal_one_and_whoever_joins_takes_all_over(kind):
    def body(group: RankGroup) -> dict[str, np.ndarray]:
        trainer, rows = trainer_of(kind), (16, 8)
        work = PlainWork(trainer)
        if group.place == 0:
            alone(trainer, 3)  # the other one comes later
            group.send_state(trainer.tensors(), trainer.step)
        else:
            word = group.receive()
            work.restore(group.take_state(word), word.step)
        trainer.join(sync_of(trainer.module, RankSettings(), CPU))
        trainer.sync.share(group.place, rows)
        planned = TrainingRound(trainer.step, 5, ROWS, 0, 0.0)
        train_together(group, trainer, work, planned, work.share(planned, rows, group.place))
        return numbers(trainer)

    whole, fresh = alone(trainer_of(kind), 8), numbers(trainer_of(kind))  # before the fork: with its first optimiser, torch imports
    first, second = in_ranks(2, body)
    assert first.keys() == second.keys() == whole.keys()
    for name, tensor in whole.items():
        assert np.array_equal(first[name], second[name]), name
        assert np.abs(first[name] - tensor).max() <= TOLERANCE, name
    assert max(np.abs(whole[name] - fresh[name]).max() for name in fresh) > 1000 * TOLERANCE


def test_shares_of_a_batch_are_all_of_it_and_follow_each_other():
    work = PlainWork(trainer_of())
    planned = TrainingRound(7, 2, ROWS, 0, 0.0)
    orders = [work.share(planned, (10, 6, 8), place) for place in range(3)]
    assert orders[0] == work.order(7, 10, 0)
    for step in (7, 8):
        taken = []
        for order in orders:
            with work.take(order) as rows:
                assert len(rows) == order.rows
                taken.append(rows.tensors[0])
        assert torch.equal(torch.cat(taken), draw(step, slice(0, ROWS))[0])
        orders = [order.following for order in orders]


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_snapshot_brings_back_weights_and_what_the_optimiser_keeps(kind):
    trainer = trainer_of(kind)
    alone(trainer, 2)
    before, snapshot = numbers(trainer), trainer.snapshot()
    after = alone(trainer, 3)
    trainer.restore(*snapshot)
    assert trainer.step == 2
    assert all(np.array_equal(tensor, before[name]) for name, tensor in numbers(trainer).items())
    again = alone(trainer, 3)
    assert all(np.array_equal(tensor, after[name]) for name, tensor in again.items())


def test_without_memory_passes_are_halved_and_the_batch_is_as_before():
    def crowded(model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        if len(inputs) > 7:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return squared(model, inputs, targets)

    trainer = trainer_of(loss=crowded)
    found, whole = alone(trainer, 4), alone(trainer_of(), 4)
    assert (trainer.micro_batch, trainer.errors) == (6, 2)
    assert 0 < float(trainer.last_loss) < 3
    assert all(np.abs(found[name] - tensor).max() <= TOLERANCE for name, tensor in whole.items())


def test_parts_are_as_few_as_fit_and_alike_in_size():
    rows = TensorRows((torch.arange(10), torch.arange(10) * 2))
    assert [len(part) for part in rows.parts(4)] == [3, 3, 4]
    assert [len(part) for part in rows.parts(0)] == [10]
    assert torch.equal(torch.cat([part.tensors[1] for part in rows.parts(4)]), rows.tensors[1])


def test_a_step_has_the_learning_rate_that_is_said_for_it():
    told: list[int] = []
    trainer = trainer_of("sgd", learning_rate=lambda step: told.append(step) or 0.5 / (1 + step), step=4)
    alone(trainer, 2)
    assert told == [4, 5]
    assert trainer._optimizer.param_groups[0]["lr"] == 0.5 / 6


def test_what_cannot_train_is_refused():
    module = Tied()
    with pytest.raises(ConfigError, match="not the module's"):
        ranks.ModuleTrainer(module, torch.optim.SGD(Tied().parameters(), lr=0.1), squared, draw)
    with pytest.raises(ConfigError, match="1 rows are less"):
        ranks.initialise(trainer_of(), "redis://127.0.0.1:1", RankPlace(0, 2), rows=1)
    with pytest.raises(ValueError, match="compression"):
        RankSettings(sync_every=4, compression="fp16")


def test_rank_0_trains_alone_tells_how_and_shuts_down():
    bus, trainer = MemoryBus(), trainer_of()
    with training_of(trainer, bus) as training:
        assert training.step(5) == 5
        figures = training.statistics()
        assert (figures.ranks, figures.healthy, figures.failures) == (2, 1, 0)
        assert [(row.rank, row.state) for row in figures.by_rank] == [(0, "trains"), (1, "away")]
        assert figures.by_rank[0].rows == ROWS
        assert figures.by_rank[0].samples_per_s > 0
        with pytest.raises(EvaluationTimeout, match="2 ranks"):
            training.wait_for(2, within_s=0.0)
        assert bus.get(keys.ranks(RUN))
    assert bus.get(keys.ranks(RUN)) is None


def test_an_error_leaves_the_others_waiting():
    bus = MemoryBus()

    def failing() -> None:
        with training_of(trainer_of(), bus) as training:
            training.step()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert bus.get(keys.ranks(RUN))


@pytest.mark.parametrize("stays", [False, True])
def test_a_rank_waits_for_rank_0_and_ends_with_it_or_stays(stays):
    bus, stop, turns = MemoryBus(), threading.Event(), []
    place = RankPlace(1, 2)
    follower = Follower(run_name=RUN, place=place, config=RankSettings(), bus=bus, work=PlainWork(trainer_of()), stays=stays)

    def turn() -> None:
        turns.append(bus.get(keys.rank(RUN, 1)) is not None)
        if len(turns) == 3:  # it waited for a table
            bus.put(keys.ranks(RUN), encode(RankTable(host="127.0.0.1")))
        if len(turns) == 5:
            bus.delete(keys.ranks(RUN))
        if len(turns) == 9:
            stop.set()

    follower.run(stop, turn)
    assert len(turns) == (9 if stays else 5)
    assert turns[1:] == [True] * (len(turns) - 1)  # it said that it is free
    assert bus.get(keys.rank(RUN, 1)) is None
