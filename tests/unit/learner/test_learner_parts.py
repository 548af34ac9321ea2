"""Loss, moving average, precision, strength, curves: the learner's small pieces."""

from __future__ import annotations

import math

import pytest
import torch
from memory_broker import MemoryBus

from azq.config import LearnerConfig
from azq.errors import ConfigError
from azq.learner.curves import ResultCurves, match_curves
from azq.learner.opening import pick_threads, training_device
from azq.learner.step.loss import losses
from azq.learner.step.optimizer import Ema, decay_at
from azq.learner.step.trainer import autocast_dtype
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import MatchResult, MatchSpec


def test_loss_is_cross_entropy_over_legal_actions_and_squared_error():
    logits = torch.tensor([[0.0, math.log(3.0), 50.0]])
    legal = torch.tensor([[True, True, False]])
    policy, value = losses(logits, torch.tensor([[0.5]]), torch.tensor([[0.25, 0.75, 0.0]]), torch.tensor([[-0.5]]), legal)
    assert float(policy) == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), abs=1e-6)
    assert float(value) == pytest.approx(1.0)


def test_gradient_never_reaches_illegal_actions():
    logits = torch.zeros(1, 3, requires_grad=True)
    policy, _ = losses(logits, torch.zeros(1, 1), torch.tensor([[1.0, 0.0, 0.0]]), torch.zeros(1, 1), torch.tensor([[True, True, False]]))
    policy.backward()
    assert torch.isfinite(logits.grad).all()
    assert float(logits.grad[0, 2]) == 0.0


def test_moving_average_follows_with_its_decay():
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    ema = Ema(module, 0.9)
    torch.nn.init.ones_(module.weight)
    ema.update(module, 10_000)
    assert float(ema.module.get_parameter("weight")) == pytest.approx(0.1)
    ema.update(module, 10_001)
    assert float(ema.module.get_parameter("weight")) == pytest.approx(0.19)
    assert float(module.weight.detach()) == 1.0
    assert not ema.module.weight.requires_grad


def test_moving_average_forgets_the_random_start():
    assert decay_at(0.995, 0) == pytest.approx(0.1)
    assert decay_at(0.995, 10**6) == 0.995
    assert all(decay_at(0.995, step) <= decay_at(0.995, step + 1) for step in range(3000))


def test_device_and_precision_follow_the_settings():
    cpu = training_device(LearnerConfig(device="cpu"))
    assert autocast_dtype(LearnerConfig(precision="float32"), cpu) is None
    assert autocast_dtype(LearnerConfig(precision="bfloat16"), cpu) is torch.bfloat16
    capable = torch.cpu.get_capabilities().get("avx512_bf16") or torch.cpu.get_capabilities().get("amx_bf16")
    assert (autocast_dtype(LearnerConfig(), cpu) is torch.bfloat16) == bool(capable)
    assert pick_threads(LearnerConfig(threads=3), cpu) == 3
    assert pick_threads(LearnerConfig(), cpu) >= 1
    with pytest.raises(ConfigError, match=r"learner\.device = 'abacus'"):
        training_device(LearnerConfig(device="abacus"))


def test_a_match_against_uct_gives_the_elo_curve():
    spec = MatchSpec("weights:3", "uct:100", 40, 64, 4, 0)
    curves = match_curves(MatchResult(spec, "weights:3", "uct:100", 30, 0, 10, 1))
    assert curves["arena/score_uct_100"] == 0.75
    assert curves["arena/elo"] > 100
    assert "arena/elo" not in match_curves(MatchResult(spec, "weights:3", "weights:2", 30, 0, 10, 1))


def test_a_match_in_parts_is_one_curve_as_far_as_it_was_played() -> None:
    bus, curves = MemoryBus(), ResultCurves()
    for first, wins, score in ((0, 8, 0.8), (10, 2, 0.5), (10, 2, 0.5)):  # one part lies there twice
        spec = MatchSpec("weights:1", "uct:100", 10, 8, 0, 1, first, 30)
        bus.publish(keys.results("r"), encode(MatchResult(spec, "weights:1", "uct:100", wins, 0, 10 - wins, 1)))
        assert curves.read(bus, "r")["arena/score_uct_100"] == score
