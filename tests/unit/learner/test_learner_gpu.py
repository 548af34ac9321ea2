"""The learner on a CUDA device: page-locked buffers, fences, marks on the device's queue."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.learner.batches import Direct, Draws, Order
from azq.learner.bench import full_window
from azq.learner.prefetch import Prefetcher
from azq.learner.ranks.reducing import CudaStopwatch
from azq.learner.symmetry import Symmetries
from azq.learner.trainer import Trainer
from azq.nets import NetSpec, build

pytestmark = pytest.mark.gpu


def test_training_on_prefetched_batches_equals_training_on_direct_ones():
    game, device = games.load("connect_four"), torch.device("cuda")
    spec = NetSpec.of(game)
    window = full_window(game, spec, 20_000)
    weights = []
    for make in (lambda draws: Prefetcher(window, draws, 3, device), lambda draws: Direct(window, draws)):
        config = LearnerConfig(device="cuda", precision="float32", batch_size=512)
        network = build(NetworkConfig(kind="mlp", blocks=2, channels=64), spec, seed=1)
        trainer = Trainer(network, spec, config, device, Symmetries(game, device))
        feed = make(Draws(3, trainer.num_symmetries))
        for step in range(50):
            with feed.take(Order(step, 512, 20_000)) as batch:
                trainer.train_on(batch, 0.0)
        feed.close()
        weights.append({name: tensor.cpu().numpy() for name, tensor in trainer.module.state_dict().items()})
    # A buffer that was filled again before the device had read it would show as another batch, not as a rounding.
    assert all(np.allclose(weights[0][name], weights[1][name], atol=1e-5) for name in weights[0])


def test_a_stopwatch_measures_the_device_and_not_the_call():
    watch = CudaStopwatch()
    many = torch.randn(4096, 4096, device="cuda")
    watch.begin()
    for _ in range(50):
        many = torch.tanh(many @ many)
    watch.end()
    assert watch.taken_s() > 0.001
    assert watch.taken_s() == 0
