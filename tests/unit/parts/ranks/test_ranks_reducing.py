"""Two gloo ranks beside one rank with the same global batch; compression; averaging; what a group carries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from rank_processes import in_ranks
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket, HashStore
from torch.nn.parallel import DistributedDataParallel

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.learner.data.batches import Batch
from azq.learner.rounds import RoundTiming, TrainingRound
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, build, unpack
from azq.parts.ranks.group import Command, RankGroup
from azq.parts.ranks.reducing import Hook, Stopwatch, TopK, hook_of, sent_of, sync_of
from azq.replay.samples import Samples

CPU = torch.device("cpu")
STEPS = 12
TOLERANCE = 2e-6  # sums in another order; weights are about 0.1, steps 2e-3


def planted(spec: NetSpec, rows: int, seed: int) -> Samples:
    """Positions whose best action is the first column with a stone of plane 0, and whose value is that stone's colour of plane 1."""
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (rows, spec.packed_size), dtype=np.uint8)
    planes, _ = unpack(torch.from_numpy(packed), spec)
    best = planes[:, 0].sum(1).argmax(1).numpy() % spec.num_actions
    policies = np.zeros((rows, spec.num_actions), np.float16)
    policies[np.arange(rows), best] = 1
    values = (2 * planes[:, 1, 0, 0] - 1).numpy().astype(np.float32)[:, None]
    masks = np.packbits(np.ones((rows, spec.num_actions), np.uint8), axis=1, bitorder="little")
    return Samples(packed, policies, values, masks)


def part(samples: Samples, begin: int, end: int) -> Samples:
    return Samples(samples.packed[begin:end], samples.policies[begin:end], samples.values[begin:end], samples.masks[begin:end])


def trainer_of(config: LearnerConfig, network: NetworkConfig | None = None) -> Trainer:
    game = games.load("connect_four")
    spec = NetSpec.of(game)
    return Trainer(build(network or NetworkConfig(kind="mlp", blocks=2, channels=32), spec, seed=4), spec, config, CPU)


def config_of(**changes: Any) -> LearnerConfig:
    return LearnerConfig(**{"device": "cpu", "precision": "float32", "warmup_steps": 1, "ema_decay": 0.5, "ranks": 2, **changes})


def numbers(trainer: Trainer) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in trainer.tensors().items()}


def train_rank(group: RankGroup, config: LearnerConfig, rows: tuple[int, ...], steps: int) -> tuple[dict[str, np.ndarray], float]:
    trainer = trainer_of(config)
    sync = sync_of(trainer.module, config, CPU)
    sync.share(group.place, rows)
    trainer.join(sync)
    spec = NetSpec.of(games.load("connect_four"))
    begin = sum(rows[: group.place])
    for step in range(steps):
        trainer.train_on(Batch(part(planted(spec, sum(rows), step), begin, begin + rows[group.place])), 0.0)
    return numbers(trainer), sync.waited_s()


def alone(config: LearnerConfig, rows: int, steps: int) -> dict[str, np.ndarray]:
    trainer = trainer_of(config)
    spec = NetSpec.of(games.load("connect_four"))
    for step in range(steps):
        trainer.train_on(Batch(planted(spec, rows, step)), 0.0)
    return numbers(trainer)


@pytest.mark.parametrize(("rows", "micro_batch"), [((48, 48), 0), ((64, 32), 20)])
def test_two_ranks_equal_one_rank_with_the_same_global_batch(rows, micro_batch):
    config = config_of(micro_batch=micro_batch)
    (first, waited_s), (second, _) = in_ranks(2, lambda group: train_rank(group, config, rows, STEPS))
    whole = alone(config, sum(rows), STEPS)
    fresh = alone(config, sum(rows), 0)
    for name, tensor in whole.items():
        if not name.startswith("ema/"):
            assert np.array_equal(first[name], second[name]), name
        assert np.abs(first[name] - tensor).max() <= TOLERANCE, name
    moved = max(np.abs(whole[name] - fresh[name]).max() for name in fresh)
    assert moved > 1000 * TOLERANCE
    assert waited_s > 0


def test_averaging_every_few_steps_makes_ranks_equal_then_and_only_then():
    config = config_of(sync_every=4)

    def body(group: RankGroup) -> list[np.ndarray]:
        return [train_rank(group, config, (48, 24), steps)[0]["weights/policy.weight"] for steps in (3, 4, 8)]

    first, second = in_ranks(2, body)
    assert not np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])
    assert np.array_equal(first[2], second[2])
    one, other = (alone_on(config, begin, end) for begin, end in ((0, 48), (48, 72)))
    assert np.abs(first[1] - (48 * one + 24 * other) / 72).max() <= TOLERANCE


def alone_on(config: LearnerConfig, begin: int, end: int) -> np.ndarray:
    """Four steps of one rank by itself on its part of each batch."""
    trainer = trainer_of(config)
    spec = NetSpec.of(games.load("connect_four"))
    for step in range(4):
        trainer.train_on(Batch(part(planted(spec, 72, step), begin, end)), 0.0)
    return numbers(trainer)["weights/policy.weight"]


def test_a_group_carries_words_timings_and_a_trainers_state():
    planned = TrainingRound(7, 3, 96, 1000, 0.25)
    spoken = Command("train", planned=planned, rows=(64, 32))

    def body(group: RankGroup) -> tuple[Command, list[RoundTiming], bool]:
        trainer = trainer_of(config_of())
        if group.place == 0:
            spec = NetSpec.of(games.load("connect_four"))
            trainer.train_on(Batch(planted(spec, 16, 0)), 0.0)
            group.send(spoken)
            group.send_state(trainer.tensors(), trainer.step)
            heard, same = spoken, True
        else:
            heard = group.receive()
            word = group.receive()
            state = group.take_state(word)
            trainer.load_tensors(state, word.step)
            same = trainer.step == 1 and all(torch.equal(tensor, state[name]) for name, tensor in trainer.tensors().items())
        return heard, group.gather(RoundTiming(3, (64, 32)[group.place], 1.5, 0.5)), same

    for heard, timings, same in in_ranks(2, body):
        assert heard == spoken
        assert timings == [RoundTiming(3, 64, 1.5, 0.5), RoundTiming(3, 32, 1.5, 0.5)]
        assert same


def test_a_stopwatch_counts_from_the_last_beginning():
    watch = Stopwatch(CPU)
    watch.end()
    assert watch.taken_s() == 0
    watch.begin()
    watch.begin()
    watch.end()
    watch.end()
    assert 0 < watch.taken_s() < 1
    assert watch.taken_s() == 0


def test_weights_are_averaged_where_they_lie_whatever_the_order_of_their_memory(tmp_path):
    config = config_of(sync_every=2)
    network = NetworkConfig(kind="resnet", blocks=1, channels=8)
    samples = planted(NetSpec.of(games.load("connect_four")), 64, 1)

    def trained() -> list[dict[str, np.ndarray]]:
        found = []
        for layout in (torch.contiguous_format, torch.channels_last):
            trainer = trainer_of(config, network)
            trainer.module.to(memory_format=layout)
            places = [parameter.data_ptr() for parameter in trainer.module.parameters()]
            sync = sync_of(trainer.module, config, CPU)
            sync.share(0, (64,))
            trainer.join(sync)
            for _ in range(4):
                trainer.train_on(Batch(samples), 0.0)
            assert places == [parameter.data_ptr() for parameter in trainer.module.parameters()]
            assert trainer.module.get_parameter("blocks.0.a.weight").is_contiguous(memory_format=layout)
            found.append(numbers(trainer))
            trainer.leave()
        return found

    group = RankGroup(HashStore(), 1, 0, 1, CPU, 30.0)
    try:
        plain, last = trained()
    finally:
        group.close()
    # Adam divides by the gradient's size: where that is next to nothing its rounding decides, so weights in the mean, not each.
    worst = max((float(np.abs(plain[name] - last[name]).mean()), name) for name in plain if name.startswith("weights/"))
    assert worst[0] <= 1e-4, worst


INPUTS, OUTPUTS = 48, 24
NUMBERS = INPUTS * OUTPUTS + OUTPUTS
COMPRESSED_STEPS, LATE = 300, 3
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
        return [regression(hook, group.place, COMPRESSED_STEPS)[0] for hook in [*hooks(), TopK(0.1, feedback=False).reduce]]

    *left, forgot = in_ranks(2, body, seconds=300.0)[0]
    print(dict(zip(WAYS, left, strict=True)), "without what was left out:", forgot)
    assert max(left) < 2e-2
    assert forgot > 10 * max(left)


@pytest.mark.parametrize(("numbers", "ratio", "sent"), [(1000, 0.1, 50), (1000, 1.0, 500), (3, 0.1, 1)])
def test_values_and_their_places_take_the_ratio_together(numbers, ratio, sent):
    assert sent_of(numbers, ratio) == sent
