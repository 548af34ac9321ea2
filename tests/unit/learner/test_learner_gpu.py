"""The learner on a CUDA device: page-locked buffers, fences, marks on the device's queue."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._C._distributed_c10d import HashStore

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.learner.checkpoint import Checkpoint, TrainState, load, save
from azq.learner.data.batches import Draws, Feed, Prefetcher
from azq.learner.rounds import RoundTiming
from azq.learner.step.loss import Symmetries
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, build
from azq.parts.lab.bench.learner import full_window
from azq.parts.ranks.group import RankGroup
from azq.parts.ranks.reducing import Stopwatch, sync_of

pytestmark = pytest.mark.gpu

GAME = games.load("connect_four")


def test_training_on_prefetched_batches_equals_training_on_direct_ones():
    game, device = games.load("connect_four"), torch.device("cuda")
    spec = NetSpec.of(game)
    window = full_window(game, spec, 20_000)
    weights = []
    for make in (lambda draws: Prefetcher(window, draws, device, 3), lambda draws: Feed(window, draws)):
        config = LearnerConfig(device="cuda", precision="float32", batch_size=512)
        network = build(NetworkConfig(kind="mlp", blocks=2, channels=64), spec, seed=1)
        trainer = Trainer(network, spec, config, device, Symmetries(game, device))
        feed = make(Draws(3, trainer.num_symmetries))
        for step in range(50):
            with feed.take(feed.order(step, 512, 20_000)) as batch:
                trainer.train_on(batch, 0.0)
        feed.close()
        weights.append({name: tensor.cpu().numpy() for name, tensor in trainer.module.state_dict().items()})
    # A buffer that was filled again before the device had read it would show as another batch, not as a rounding.
    assert all(np.allclose(weights[0][name], weights[1][name], atol=1e-5) for name in weights[0])


def test_a_stopwatch_measures_the_device_and_not_the_call():
    watch = Stopwatch(torch.device("cuda"))
    many = torch.randn(4096, 4096, device="cuda")
    watch.begin()
    for _ in range(50):
        many = torch.tanh(many @ many)
    watch.end()
    assert watch.taken_s() > 0.001
    assert watch.taken_s() == 0


def steps_on(device, *, precision="float32", join=None, count=20):
    """Weights and loss after a few steps on the same samples."""
    game = games.load("connect_four")
    spec = NetSpec.of(game)
    window = full_window(game, spec, 5_000)
    config = LearnerConfig(device=str(device), precision=precision, batch_size=256, symmetries=True)
    network = build(NetworkConfig(kind="resnet", blocks=2, channels=16), spec, seed=1)
    trainer = Trainer(network, spec, config, device, Symmetries(game, device))
    if join is not None:
        trainer.join(join(trainer.module, config))
    feed = Feed(window, Draws(3, trainer.num_symmetries))
    for step in range(count):
        with feed.take(feed.order(step, 256, 5_000)) as batch:
            trainer.train_on(batch, 0.0)
    losses = trainer.mean_losses()
    return {name: tensor.cpu().numpy() for name, tensor in trainer.module.state_dict().items()}, losses, trainer


def test_steps_on_the_device_are_those_on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    cpu, gpu = steps_on(torch.device("cpu")), steps_on(torch.device("cuda"))
    assert cpu[1].policy == pytest.approx(gpu[1].policy, rel=1e-3)
    assert cpu[1].value == pytest.approx(gpu[1].value, rel=1e-3)
    # Adam divides by the gradient's size, so that where it is next to nothing its rounding decides the step: in the mean, not at most.
    assert all(np.abs(cpu[0][name] - gpu[0][name]).mean() <= 1e-3 for name in cpu[0])
    brief = steps_on(torch.device("cuda"), precision="bfloat16")
    assert brief[1].policy == pytest.approx(cpu[1].policy, rel=0.02)


def test_a_checkpoint_of_the_device_goes_on_there_and_on_the_cpu(tmp_path):
    _, _, trainer = steps_on(torch.device("cuda"))
    state = TrainState(1, "connect_four", trainer.step, 0, 0, 0, 0.0, 0.0)
    path = save(tmp_path, Checkpoint(state, trainer.tensors()))
    for device in (torch.device("cuda"), torch.device("cpu")):
        _, _, other = steps_on(device, count=3)
        other.load_tensors(load(path).tensors, trainer.step)
        assert all(torch.equal(tensor.cpu(), other.tensors()[name].cpu()) for name, tensor in trainer.tensors().items())
        feed = Feed(full_window(GAME, NetSpec.of(GAME), 1_000), Draws(3, other.num_symmetries))
        with feed.take(feed.order(30, 64, 1_000)) as batch:
            other.train_on(batch, 0.0)
        assert np.isfinite(other.mean_losses().policy)


def test_a_group_of_one_trains_with_nccl_as_one_alone(tmp_path):
    device = torch.device("cuda")
    alone = steps_on(device)[0]
    group = RankGroup(HashStore(), 1, 0, 1, device, 30.0)
    try:
        for options in ({}, {"compression": "fp16"}, {"sync_every": 4}):

            def join(module, config, options=options):
                sync = sync_of(module, config.model_copy(update=options), device)
                sync.share(0, (256,))
                return sync

            weights, _, trainer = steps_on(device, join=join)
            bound = 1e-2 if options else 1e-3
            assert all(np.abs(alone[name] - weights[name]).mean() <= bound for name in alone)
            group.meet()
            assert trainer.sync.waited_s() >= 0.0
            trainer.leave()
        assert [timing.rows for timing in group.gather(RoundTiming(1, 256, 0.1, 0.0))] == [256]
    finally:
        group.close()
