"""Ranks that hold a part of all beside one rank that holds it whole: the same weights; and the copy that rank 0 keeps of the parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_processes import in_ranks
from torch import Tensor
from unit.parts.ranks.test_ranks_reducing import CPU, TOLERANCE, config_of, numbers, part, planted
from unit.parts.ranks.test_ranks_reducing import trainer_of as fresh_trainer

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.learner.data.batches import Batch
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec
from azq.parts.ranks.group import RankGroup
from azq.parts.ranks.reducing import Stopwatch
from azq.parts.ranks.sharding import Sharded, SpareCopy, bytes_of

STEPS = 6
TRANSFORMER = NetworkConfig(kind="transformer", blocks=2, channels=24, heads=4)


def trainer_of(config: LearnerConfig, network: NetworkConfig) -> Trainer:
    """One whose branches are not zero: of gradients that are next to nothing, Adam would make steps of their rounding."""
    trainer, draw = fresh_trainer(config, network), torch.Generator().manual_seed(7)
    state = {name: one + 0.05 * torch.randn(one.shape, generator=draw) for name, one in trainer.module.state_dict().items()}
    trainer.load_weights(state, 0)
    return trainer


def sharded(group: RankGroup, trainer: Trainer) -> Sharded:
    whole, step = trainer.tensors(), trainer.step
    if group.place == 0:
        group.send_plan(whole, step)
    else:
        word = group.receive()
        whole, step = group.take_plan(word), word.step
    sync = Sharded(trainer, Stopwatch(CPU))
    sync.deal(whole, step)
    trainer.join(sync)
    return sync


def train(trainer: Trainer, rows: tuple[int, ...], place: int, steps: range) -> None:
    spec, begin = NetSpec.of(games.load("connect_four")), sum(rows[:place])
    for step in steps:
        trainer.train_on(Batch(part(planted(spec, sum(rows), step), begin, begin + rows[place])), 0.0)


def far(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference; what a bias adds to all keys attention does not see, so that Adam moves it by rounding alone."""
    assert one.keys() == other.keys()
    named = {name: float(np.abs(one[name] - other[name]).max()) for name in one if not name.endswith("qkv.bias")}
    return max(named.values())


@pytest.mark.parametrize(
    ("network", "rows", "micro_batch"),
    [
        (TRANSFORMER, (48, 48), 0),
        (TRANSFORMER, (28, 36, 32), 20),
        (NetworkConfig(blocks=2, channels=8), (64, 32), 0),
    ],
)
def test_ranks_with_a_part_each_equal_one_rank_with_all(network: NetworkConfig, rows: tuple[int, ...], micro_batch: int) -> None:
    config = config_of(micro_batch=micro_batch, ranks=len(rows), shard="full")

    def body(group: RankGroup) -> Any:
        trainer = trainer_of(config, network)
        if group.place:  # what it is dealt takes the place of what it had
            trainer.load_weights({name: torch.zeros_like(one) for name, one in trainer.module.state_dict().items()}, 0)
        for steps in (range(STEPS // 2), range(STEPS // 2, STEPS)):  # a second time with an optimiser's state
            sync = sharded(group, trainer)
            sync.share(group.place, rows)
            train(trainer, rows, group.place, steps)
            held = bytes_of(trainer)
            whole = {name: tensor.clone() for name, tensor in sync.whole()}
            sync.end()
            if group.place == 0:
                trainer.restore(whole, trainer.step)
            trainer.leave()
        return numbers(trainer), held, sync.waited_s()

    results = in_ranks(len(rows), body, seconds=120.0)
    one = trainer_of(config, network)
    train(one, (sum(rows),), 0, range(STEPS))
    assert far(results[0][0], numbers(one)) <= TOLERANCE
    fresh = numbers(trainer_of(config, network))
    assert far({name: numbers(one)[name] for name in fresh}, fresh) > 1000 * TOLERANCE
    for _, held, waited_s in results:
        assert held < 1.1 * bytes_of(one) / len(rows) + 4096
        assert waited_s > 0


def test_who_leaves_breaks_the_connections() -> None:
    """Others notice by that; where something still held the group they waited for their timeout, a minute."""
    config, network = config_of(ranks=2, shard="full"), NetworkConfig(blocks=1, channels=8)

    def body(group: RankGroup) -> tuple[int, int]:
        trainer = trainer_of(config, network)
        sync = sharded(group, trainer)
        sync.share(group.place, (48, 48))
        train(trainer, (48, 48), group.place, range(2))
        together = sockets()
        group.meet()  # nobody leaves before both have counted
        sync.end()
        trainer.leave()
        del sync
        group.close()
        return together, sockets()

    for together, alone in in_ranks(2, body, seconds=120.0):
        assert alone < together


def sockets() -> int:
    """Those that this process has."""
    return sum(file.is_socket() for file in Path("/proc/self/fd").iterdir())


def test_a_copy_takes_the_place_of_the_one_before_once_it_is_whole(tmp_path: Path) -> None:
    copy = SpareCopy(tmp_path)
    with pytest.raises(RuntimeError, match="nothing was dealt out"):
        copy.read()
    first = {
        "a": torch.arange(6.0).view(2, 3).t(),
        "b": torch.tensor(3.0),
        "c": torch.empty(0, 4),
        "d": torch.ones(3, dtype=torch.bfloat16),
    }
    copy.write(first.items(), 5)

    def broken() -> Iterator[tuple[str, Tensor]]:
        yield "a", torch.zeros(2)
        raise RuntimeError("a rank is gone")

    with pytest.raises(RuntimeError, match="a rank is gone"):
        copy.write(broken(), 6)
    found = copy.read()
    assert copy.step == 5
    assert all(torch.equal(found[name], first[name]) and found[name].dtype == first[name].dtype for name in first)
    copy.write({"a": torch.ones(1)}.items(), 7)
    assert (list(copy.read()), copy.step) == (["a"], 7)
    assert not list(tmp_path.iterdir())
    copy.close()


def test_a_disk_that_takes_no_copy_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="takes no copy of what ranks hold"):
        SpareCopy(tmp_path / "gone").write({"a": torch.ones(1)}.items(), 1)
