"""Heads: what they say at the start, what they are combined to, and that every one of them teaches the trunk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_doubles import SecretSum

from azq.config import NetworkConfig
from azq.errors import ConfigError
from azq.nets import NetSpec, build, load_into, unpack

KINDS = ["resnet", "mlp", "transformer", "structured"]
GROUPS = (("first", ((0, 1, 2), (3, 4, 5))), ("rest", ((6,), (7,), (12,))))
WEIGHTS, BIAS = (2 / 3, 1 / 3, 1 / 3, -1 / 3, -1 / 3), -1 / 3  # backgammon's equity over 3
BACKGAMMON = NetSpec(4, 1, 26, 5, 9, 1, WEIGHTS, BIAS, has_margin=True)
CARDS = NetSpec(6, 1, 12, 3, 20, 4, num_hidden=30, has_margin=True)


def network(kind, spec, *auxiliary, channels=16):
    groups, encoders = (GROUPS, {"first": 1}) if kind == "structured" else ((), {})
    config = NetworkConfig(kind=kind, blocks=2, channels=channels, heads=4, encoders=encoders, auxiliary=auxiliary)
    return build(config, replace(spec, token_groups=groups), seed=0)


def inputs(spec, count=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return unpack(torch.randint(0, 256, (count, spec.packed_size), dtype=torch.uint8, generator=generator), spec)


@pytest.mark.parametrize("kind", KINDS)
def test_every_head_has_its_shape_and_starts_at_zero(kind):
    outputs = network(kind, CARDS, "advantage", "margin", "hidden").forward_all(*inputs(CARDS))
    assert outputs.outcomes is None
    shapes = {"logits": (5, 20), "values": (5, 4), "advantage": (5, 20), "margin": (5,), "hidden": (5, 30)}
    for name, shape in shapes.items():
        assert getattr(outputs, name).shape == shape
        assert not getattr(outputs, name).any()


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_combine_to_the_value(kind):
    module = network(kind, BACKGAMMON)
    with torch.no_grad():
        module.outcome.weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    planes, scalars = inputs(BACKGAMMON, 40)
    logits, values = module(planes, scalars)
    full = module.forward_all(planes, scalars)
    chances = module.outcomes(planes, scalars)
    assert torch.equal(logits, full.logits)
    assert torch.equal(values, full.values)
    assert torch.allclose(chances, torch.sigmoid(full.outcomes))
    win, gammon, backgammon, lost_gammon, lost_backgammon = chances.T
    equity = 2 * win - 1 + gammon + backgammon - lost_gammon - lost_backgammon
    assert torch.allclose(values[:, 0], equity / 3, atol=1e-6)
    assert values.abs().max() > 0.01


def test_the_combined_value_keeps_its_bits_under_autocast():
    module = network("mlp", BACKGAMMON)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = module.forward_all(*inputs(BACKGAMMON))
    assert outputs.values.dtype == torch.float32
    assert outputs.values.abs().max() < 1e-6


def test_the_spec_of_a_game_with_everything():
    spec = NetSpec.of(SecretSum(2))
    assert (spec.outcome_weights, spec.outcome_bias, spec.num_hidden, spec.has_margin) == ((1.0, -1.0), 0.0, 4, True)
    assert NetSpec.of(SecretSum(3)).value_size == 3
    assert spec.auxiliary == ("advantage", "margin", "hidden")


def test_outcomes_are_for_two_players(monkeypatch):
    game = SecretSum(3)
    monkeypatch.setattr(game, "outcome_combination", lambda: (np.ones(2, np.float32), 0.0))
    with pytest.raises(ConfigError, match="declares outcomes and 3 values"):
        NetSpec.of(game)


@pytest.mark.parametrize("name", ["margin", "hidden"])
def test_a_head_without_targets_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=rf"names '{name}', the game has no targets for it; it has them for advantage"):
        network("mlp", NetSpec(3, 6, 7, 0, 7, 1), name)


def test_only_games_with_outcomes_tell_them():
    with pytest.raises(ConfigError, match="declares no outcomes"):
        network("mlp", CARDS).outcomes(*inputs(CARDS))


@pytest.mark.parametrize("kind", KINDS)
def test_every_head_teaches_the_trunk(kind):
    spec = NetSpec(6, 1, 12, 3, 20, 1, WEIGHTS, BIAS, 30, True)
    module = network(kind, spec, "advantage", "margin", "hidden")
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any() and parameter.ndim >= 2:  # heads and branches that start at zero let no gradient through yet
                parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
    stem = next(parameter for name, parameter in module.named_parameters() if name.startswith(("stem", "cells", "encoders.of_first.bits")))
    for name in ("logits", "values", "outcomes", "advantage", "margin", "hidden"):
        module.zero_grad()
        getattr(module.forward_all(*inputs(spec)), name).square().sum().backward()
        assert stem.grad is not None
        assert stem.grad.abs().max() > 0, name
    for name, parameter in module.named_parameters():
        module.zero_grad()
        outputs = module.forward_all(*inputs(spec))
        sum(output.square().sum() for output in outputs).backward()
        assert parameter.grad is not None, name


@pytest.mark.parametrize("kind", KINDS)
def test_weights_without_auxiliary_heads_keep_their_tensor_names(kind):
    plain, taught = network(kind, CARDS), network(kind, CARDS, "advantage", "hidden")
    names = set(plain.state_dict())
    assert {"policy.weight", "policy.bias", "value.weight", "value.bias"} <= names
    extra = set(taught.state_dict()) - names
    assert extra == {f"auxiliary.{head}.{kind_of}" for head in ("advantage", "hidden") for kind_of in ("weight", "bias")}
    load_into(plain, {name: tensor for name, tensor in taught.state_dict().items() if name in names})


def test_a_resnets_tensors_are_those_of_the_first_release():
    names = [
        "stem", "blocks.0.a", "blocks.0.b", "blocks.1.a", "blocks.1.b", "squeeze", "policy", "value_hidden", "value",
    ]  # fmt: skip
    wanted = {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    assert set(network("resnet", NetSpec(3, 6, 7, 0, 7, 1)).state_dict()) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_the_heads_stay_in_float32_when_the_trunk_does_not(kind):
    spec = NetSpec(6, 1, 12, 3, 20, 1, WEIGHTS, BIAS, 30, True)
    module = network(kind, spec, "margin", "hidden").trunk_to(torch.bfloat16)
    outputs = module.forward_all(*inputs(spec))
    assert all(output.dtype == torch.float32 for output in outputs if output is not None)
    assert any(parameter.dtype == torch.bfloat16 for parameter in module.parameters())


def test_a_transformer_wants_cells_and_heads_that_divide():
    with pytest.raises(ConfigError, match=r"at least two cells; set network\.kind = 'mlp'"):
        network("transformer", NetSpec(0, 1, 1, 5, 3, 1))
    with pytest.raises(ConfigError, match=r"network\.channels = 18 is no multiple of network\.heads = 4"):
        network("transformer", CARDS, channels=18)


def test_deep_transformers_start_as_shallow_ones():
    module = network("transformer", CARDS)
    x = torch.randn(3, 13, 16)
    for block in module.blocks:
        assert torch.equal(block(x), x)


def test_a_transformer_knows_cards_by_their_place():
    """Cards of equal bits in other places are other inputs, and without places the state's token could not tell them apart."""
    module = network("transformer", CARDS)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith(("out.weight", "value.weight")):
                parameter.normal_(0, 0.2, generator=torch.Generator().manual_seed(3))
    planes = torch.zeros(2, 6, 1, 12)
    planes[0, 0, 0, 2] = planes[1, 0, 0, 9] = 1
    scalars = torch.zeros(2, 3)
    one, other = module(planes, scalars)[1]
    assert not torch.allclose(one, other, atol=1e-4)
    with torch.no_grad():
        module.places.weight[1:] = 0
    one, other = module(planes, scalars)[1]
    assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_it_overfits_a_handful_of_positions(kind):
    spec = NetSpec(6, 1, 12, 3, 20, 4, num_hidden=30)
    module = network(kind, spec, "hidden")
    optimiser = torch.optim.AdamW(module.parameters(), 8e-3)
    generator = torch.Generator().manual_seed(0)
    planes, scalars = inputs(spec, 8)
    policy = torch.randint(0, 20, (8,), generator=generator)
    value = torch.rand(8, 4, generator=generator) * 2 - 1
    hidden = torch.randint(0, 2, (8, 30), generator=generator).float()
    for _ in range(60):
        outputs = module.forward_all(planes, scalars)
        loss = torch.nn.functional.cross_entropy(outputs.logits, policy) + (outputs.values - value).square().mean()
        loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(outputs.hidden, hidden)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert (outputs.logits.argmax(1) == policy).all()
    assert (outputs.values - value).abs().mean() < 0.15
    assert ((outputs.hidden > 0) == (hidden > 0.5)).float().mean() > 0.99
