"""Muon: what an orthogonalised matrix is, which parameters it moves, and that a trainer with it learns and resumes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_doubles import train
from replay_games import play_game, samples_of_one

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.learner.data.batches import Batch
from azq.learner.step.optimizer import MATRICES, Muon, orthogonalised
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, build

GAME = games.load("connect_four")
SPEC = NetSpec.of(GAME)
MUON = LearnerConfig(muon_rate=1e-2, precision="float32", warmup_steps=5, learning_rate=5e-3)


def trainer_of(config: LearnerConfig = MUON, blocks: int = 1, channels: int = 16) -> Trainer:
    module = build(NetworkConfig(blocks=blocks, channels=channels), SPEC, seed=1)
    return Trainer(module, SPEC, config, torch.device("cpu"))


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(2, 12), columns=st.integers(2, 12), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_singular_values_come_near_one_and_their_vectors_stay(rows, columns, scale, seed):
    noise = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, min(rows, columns), generator=noise))
    right, _ = torch.linalg.qr(torch.randn(columns, min(rows, columns), generator=noise))
    values = torch.linspace(0.3, 1.0, min(rows, columns))
    found = orthogonalised((scale * left * values @ right.T)[None])[0]
    inner = left.T @ found @ right  # diagonal where the singular vectors are the same
    assert inner.diagonal().sub(1).abs().max() < 0.35
    assert (inner - inner.diagonal().diag()).abs().max() < 1e-3


def test_no_gradient_moves_nothing():
    assert torch.equal(orthogonalised(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def test_a_step_is_the_rate_times_a_fifth_whatever_the_gradient():
    """Entries of an update have AdamW's usual root mean square, so that one learning rate is right for both."""
    weight = torch.nn.Parameter(torch.zeros(32, 64))
    optimizer = Muon([{"params": [weight], MATRICES: 1.0}], lr=0.1, weight_decay=0.0)
    for scale in (1e-4, 1e4):
        before = weight.detach().clone()
        weight.grad = scale * torch.randn(32, 64, generator=torch.Generator().manual_seed(3))
        optimizer.state.clear()
        optimizer.step()
        assert float((weight.detach() - before).square().mean().sqrt()) == pytest.approx(0.1 * 0.2, rel=0.2)


def test_it_learns_and_a_resumed_trainer_goes_on_bit_for_bit():
    samples = samples_of_one(GAME, play_game(GAME, 1), 0.5)
    whole, rng = trainer_of(), np.random.default_rng(0)
    for _ in range(20):
        train(whole, samples, rng)
    halfway, step = whole.snapshot()
    assert any(name.startswith("momentum_buffer/blocks.") for name in halfway)
    again = trainer_of()
    again.restore(halfway, step)
    first = whole.mean_losses().policy
    whole.reset_losses()
    for trainer in (whole, again):
        rng = np.random.default_rng(1)
        for _ in range(20):
            train(trainer, samples, rng)
    assert whole.mean_losses().policy < first
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(whole.tensors().values(), again.tensors().values(), strict=True))


def test_its_rate_follows_the_schedule_of_the_learning_rate():
    config = MUON.model_copy(update={"warmup_steps": 4, "lr_drops": (0.5,)})
    trainer, samples = trainer_of(config), samples_of_one(GAME, play_game(GAME, 1), 0.5)
    rates = []
    for progress in (0.0, 0.0, 0.6):
        trainer.train_on(Batch(samples), progress)
        rates.append([group["lr"] for group in trainer._optimizer.param_groups])
    assert [each[0] for each in rates] == [pytest.approx(1e-2 * share) for share in (0.25, 0.5, 0.15)]
    assert all(each[0] == pytest.approx(2 * other) for each in rates for other in each[1:])
