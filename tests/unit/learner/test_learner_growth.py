"""A network that grows says what it said before, and trains on from there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_doubles import train

from azq.config import LearnerConfig, NetworkConfig
from azq.learner.step.growth import grow, grow_tensors
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, Network, build
from azq.replay.samples import Samples

GROUPS = (("first", ((0, 1, 2), (20, 21, 22))), ("rest", ((40,), (41,))))
PLANES = NetSpec(planes=3, rows=4, cols=5, scalars=2, num_actions=7, value_size=1, num_hidden=3, has_margin=True, token_groups=GROUPS)
CPU = torch.device("cpu")


def network(kind: Any, blocks: int, channels: int, seed: int) -> Network:
    """With every weight away from its start, as after training."""
    config = NetworkConfig(kind=kind, blocks=blocks, channels=channels, heads=4, auxiliary=("advantage", "margin", "hidden"))
    module = build(config, PLANES, seed=seed)
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=noise))
    return module


def larger(kind: Any, blocks: int, channels: int) -> Network:
    config = NetworkConfig(kind=kind, blocks=blocks, channels=channels, heads=4, auxiliary=("advantage", "margin", "hidden"))
    return build(config, PLANES, seed=9)


def observations(seed: int, count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(seed)
    planes = torch.randint(0, 2, (count, PLANES.planes, PLANES.rows, PLANES.cols), generator=noise).float()
    return planes, torch.randn(count, PLANES.scalars, generator=noise)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["resnet", "mlp", "transformer", "structured"]),
    blocks=st.integers(1, 3),
    more_blocks=st.integers(0, 3),
    channels=st.integers(1, 5),
    more_channels=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_a_grown_network_says_what_it_said(kind, blocks, more_blocks, channels, more_channels, seed):
    more_channels = 0 if kind in ("transformer", "structured") else more_channels
    old = network(kind, blocks, 4 * channels, seed).eval()
    new = larger(kind, blocks + more_blocks, 4 * (channels + more_channels)).eval()
    new.load_state_dict(grow(old.state_dict(), new.state_dict()))
    inputs = observations(seed)
    with torch.no_grad():
        for before, after in zip(old.forward_all(*inputs), new.forward_all(*inputs), strict=True):
            assert (before is None) == (after is None)
            if before is not None:
                torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["resnet", "mlp"])
def test_new_channels_take_part_in_learning(kind):
    old, new = network(kind, 1, 4, 1), larger(kind, 2, 8)
    new.load_state_dict(grow(old.state_dict(), new.state_dict()))
    for _ in range(2):  # the first step moves what reads the new channels, the second what makes them
        new.zero_grad()
        logits, values = new(*observations(2))
        (logits.logsumexp(1).mean() + values.square().mean()).backward()
        with torch.no_grad():
            for parameter in new.parameters():
                parameter.sub_(0.1 * parameter.grad if parameter.grad is not None else 0.0)
    assert new.get_parameter("stem.weight").grad[4:].abs().max() > 0
    assert new.get_parameter("blocks.0.a.weight").grad[4:].abs().max() > 0
    assert new.get_parameter("blocks.1.b.weight").grad.abs().max() > 0


def samples(seed: int, count: int = 32) -> Samples:
    draw = np.random.default_rng(seed)
    packed = draw.integers(0, 2, (count, PLANES.packed_size), np.uint8)
    policies = draw.dirichlet([1.0] * PLANES.num_actions, count).astype(np.float16)
    masks = np.packbits(np.ones((count, PLANES.num_actions), np.uint8), axis=1, bitorder="little")
    return replace(
        Samples(packed, policies, draw.uniform(-1, 1, (count, 1)).astype(np.float32), masks),
        played=draw.integers(0, PLANES.num_actions, count).astype(np.uint16),
        margin=draw.uniform(-1, 1, count).astype(np.float32),
        hidden=np.packbits(draw.integers(0, 2, (count, PLANES.num_hidden), np.uint8), axis=1, bitorder="little"),
    )


def trained(steps: int) -> Trainer:
    config = LearnerConfig(precision="float32", warmup_steps=0, ema_decay=0.5)
    trainer = Trainer(network("resnet", 2, 8, 3), PLANES, config, CPU)
    for step in range(steps):
        train(trainer, samples(step), np.random.default_rng(step))
    return trainer


def copied(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.tensors().items()}


def test_a_trainer_grows_with_its_average_and_its_moments_and_trains_on():
    trainer, inputs = trained(5), observations(4)
    before = copied(trainer)
    with torch.no_grad():
        said = trainer.averaged(*inputs)
    trainer.grow(larger("resnet", 3, 12))
    with torch.no_grad():
        for old, new in zip(said, trainer.averaged(*inputs), strict=True):
            torch.testing.assert_close(new, old, rtol=1e-5, atol=1e-5)
    after = copied(trainer)
    assert trainer.step == 5
    name = "blocks.0.a.weight"
    old, new = before[f"exp_avg_sq/{name}"], after[f"exp_avg_sq/{name}"]
    assert torch.equal(new[:8, :8], old)
    assert new[8, 8, 0, 0] == pytest.approx(float(old.mean()))
    assert not after[f"exp_avg/{name}"][8:].any()
    losses = []
    for step in range(60):
        train(trainer, samples(0), np.random.default_rng(step))
        losses.append(trainer.mean_losses())
        trainer.reset_losses()
    assert losses[-1].value < losses[0].value
    assert not torch.equal(trainer.tensors()[f"weights/{name}"][8:], after[f"weights/{name}"][8:])


def test_a_grown_trainer_resumes_as_if_it_had_never_stopped():
    trainer = trained(3)
    trainer.grow(larger("resnet", 3, 12))
    kept = copied(trainer)
    other = Trainer(larger("resnet", 3, 12), PLANES, LearnerConfig(precision="float32", warmup_steps=0, ema_decay=0.5), CPU)
    other.load_tensors(kept, trainer.step)
    for one in (trainer, other):
        for step in range(4):
            train(one, samples(step), np.random.default_rng(step))
    for name, tensor in trainer.tensors().items():
        assert torch.equal(tensor, other.tensors()[name]), name


def test_what_the_optimiser_never_touched_has_no_state_after_growth_either():
    grown = grow_tensors(trained(0).tensors(), larger("resnet", 3, 12).state_dict())
    assert {name.partition("/")[0] for name in grown} == {"weights", "ema"}
