"""What a run's learning rate and its network are at a share of its horizon."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from azq.config import LearnerConfig, RateStage
from azq.learner.step.optimizer import MATRICES, Muon, learning_rate, make_optimizer


def test_learning_rate_warms_up_and_drops_at_shares_of_the_horizon():
    config = LearnerConfig(learning_rate=1.0, warmup_steps=10, lr_drops=(0.6, 0.85))
    assert learning_rate(config, 0, 0.0) == pytest.approx(0.1)
    assert learning_rate(config, 9, 0.0) == learning_rate(config, 500, 0.59) == 1.0
    assert learning_rate(config, 500, 0.6) == pytest.approx(0.2)
    assert learning_rate(config, 500, 0.9) == pytest.approx(0.04)
    assert learning_rate(config.model_copy(update={"warmup_steps": 0}), 0, 0.7) == pytest.approx(0.2)


def test_a_rate_by_samples_needs_no_horizon():
    stages = (RateStage(samples=1_000, factor=0.5), RateStage(samples=4_000, factor=0.1))
    config = LearnerConfig(learning_rate=1.0, warmup_steps=0, lr_drops=(0.6,), batch_size=100, samples_per_insert=4.0, lr_schedule=stages)
    assert [learning_rate(config, step, 0.0) for step in (0, 39, 40, 159, 160, 10**6)] == [1.0, 1.0, 0.5, 0.5, 0.1, 0.1]
    assert learning_rate(config, 40, 0.6) == pytest.approx(0.1)
    by_share = config.model_copy(update={"lr_schedule": (RateStage(at=0.3, factor=0.5),)})
    assert [learning_rate(by_share, 5, progress) for progress in (0.29, 0.3)] == [1.0, 0.5]


def test_weight_decay_is_of_matrices_alone():
    module = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    groups = make_optimizer(module, LearnerConfig(weight_decay=0.25)).param_groups
    assert [(group["weight_decay"], [one.ndim for one in group["params"]]) for group in groups] == [(0.25, [2]), (0.0, [1, 1, 1])]


def test_muon_has_the_matrices_of_blocks_at_a_rate_of_their_own():
    module = nn.ModuleDict({"stem": nn.Linear(3, 2), "blocks": nn.Linear(2, 2)})
    optimizer = make_optimizer(module, LearnerConfig(learning_rate=0.001, muon_rate=0.02))
    assert isinstance(optimizer, Muon)
    shares = [(group.get(MATRICES), [tuple(one.shape) for one in group["params"]]) for group in optimizer.param_groups]
    assert shares == [(pytest.approx(20.0), [(2, 2)]), (None, [(2, 3)]), (None, [(2,), (2,)])]


def test_without_a_rate_for_muon_it_is_adamw_also_of_one_matrix():
    optimizer = make_optimizer(nn.Linear(2, 1, bias=False), LearnerConfig(muon_rate=0.0))
    assert type(optimizer) is torch.optim.AdamW
    assert [MATRICES in group for group in optimizer.param_groups] == [False]
