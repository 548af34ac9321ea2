"""A structured network: what its groups read, that an encoder sees its own group alone, and whom it refuses."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sharp_nets import shaken

from azq import games
from azq.config import NetworkConfig, parse_run
from azq.config.run import OF_ONE_KIND
from azq.errors import ConfigError, GameContractError, WeightsError
from azq.games.adapter import AdaptedGame
from azq.nets import NetSpec, WeightsMeta, build, from_bytes, load_into, restore, to_bytes, unpack
from azq.nets.onnx import to_onnx
from azq.parts.volunteers.model_maker import probe_positions
from azq.presets import preset

GROUPS = (("left", ((0, 1, 2), (3, 4, 5))), ("right", ((6,), (7,), (8,))))
SPEC = NetSpec(2, 1, 6, 2, 5, 1, has_margin=True, num_hidden=4, token_groups=GROUPS)  # bits 9, 10 and 11 lie in no group


def network(blocks: int = 1, encoders: dict[str, int] | None = None, **others: Any) -> NetworkConfig:
    chosen = {"left": 2, "right": 1} if encoders is None else encoders
    return NetworkConfig(kind="structured", **{"blocks": blocks, "channels": 16, "heads": 4, "encoders": chosen, **others})


def bits(*places: int) -> torch.Tensor:
    planes = torch.zeros(1, 12)
    planes[0, list(places)] = 1
    return planes.view(1, 2, 1, 6)


@pytest.mark.parametrize("players", [2, 3, 4])
def test_beasty_bars_tokens_read_places_in_the_queue_and_cards_elsewhere(players: int) -> None:
    game = games.load("beasty_bar", players=players)
    groups, cards = game.token_groups(), 12 * players
    bit = np.arange(9 * cards).reshape(9, cards)
    assert list(groups) == ["queue", "bar", "hand"]
    assert np.array_equal(groups["queue"], bit[:5])
    assert np.array_equal(groups["bar"], bit[5:7].T)
    assert np.array_equal(groups["hand"], bit[7:9, :12].T)
    assert games.load("connect_four").token_groups() == {}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 11), st.integers(0, 2**12 - 1))
def test_an_encoder_sees_its_own_group_alone(place: int, others: int) -> None:
    module = shaken(network(), SPEC)
    before = torch.tensor([[others >> bit & 1 for bit in range(12)]], dtype=torch.float32)
    after = before.clone()
    after[0, place] = 1 - after[0, place]
    for name, places in GROUPS:
        encoder = module.encoders[f"of_{name}"]
        same = torch.equal(encoder(before), encoder(after))
        assert same == (place not in {one for token in places for one in token})


@pytest.mark.parametrize("place", range(12))
def test_every_bit_and_scalar_reaches_policy_and_value(place: int) -> None:
    module, scalars = shaken(network(), SPEC), torch.zeros(1, 2)
    nothing = module(bits(), scalars)
    for said in (module(bits(place), scalars), module(bits(), torch.tensor([[0.0, 0.5]]))):
        assert all(not torch.allclose(one, other, atol=1e-5) for one, other in zip(said, nothing, strict=True))


def test_tokens_of_a_group_are_told_apart_by_their_place() -> None:
    module, scalars = shaken(network(encoders={}), SPEC), torch.zeros(1, 2)
    assert not torch.allclose(module(bits(6), scalars)[1], module(bits(8), scalars)[1], atol=1e-4)


def test_the_asked_for_network_learns_and_answers() -> None:
    """The full size of the preset, one step on the rules' own positions: forward, backward, and a smaller loss after it."""
    config = parse_run(preset("beasty_bar", "gpu,structured"), "the preset")
    asked = config.network
    assert (asked.channels, asked.heads, asked.blocks, asked.encoders) == (256, 8, 4, {"queue": 6, "bar": 2, "hand": 2})
    game = games.load("beasty_bar")
    module: Any = build(asked, game, seed=0)
    planes, scalars = unpack(torch.from_numpy(probe_positions(game, 8)), module.spec)
    optimiser = torch.optim.SGD(module.parameters(), 0.05)
    losses = []
    for _ in range(2):
        said = module.forward_all(planes, scalars)
        loss = torch.nn.functional.cross_entropy(said.logits, torch.arange(8)) + (said.values - 1).square().mean()
        loss = loss + said.margin.add(-1).square().mean() + said.hidden.add(-1).square().mean() + said.advantage.add(-1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]
    assert all(parameter.grad is not None for parameter in module.parameters())
    layers = [len(encoder.layers) for encoder in module.encoders.values()]
    assert (layers, len(module.blocks)) == ([6, 2, 2], 4)


@pytest.mark.parametrize("players", [2, 3, 4])
def test_the_small_preset_is_of_any_number_of_players(players: int) -> None:
    small = parse_run(preset("beasty_bar", "structured-small"), "the preset").network
    game = games.load("beasty_bar", players=players)
    data = to_bytes(shaken(small, NetSpec.of(game)), WeightsMeta("beasty_bar", 1, network=small.description()))
    module = restore(data, game)
    with torch.inference_mode():
        values = module(*unpack(torch.from_numpy(probe_positions(game, 5)), module.spec))[1]
    assert values.shape == (5, 1 if players == 2 else players)


def test_weights_say_their_encoders_and_fit_no_others() -> None:
    config = network()
    module = shaken(config, SPEC)
    state, meta = from_bytes(to_bytes(module, WeightsMeta("own", 1, network=config.description())))
    assert meta.network["encoders"] == {"left": 2, "right": 1}
    assert not OF_ONE_KIND.keys() & NetworkConfig().description().keys(), "what is not in use is not named"
    assert "places" not in {name.rpartition(".")[2] for name in state}
    with pytest.raises(WeightsError, match=r"compare network\.kind, blocks and channels"):
        load_into(build(network(encoders={"left": 1}), SPEC), state)


@pytest.mark.parametrize("scalars", [2, 0])
@pytest.mark.parametrize("loose", [True, False])
def test_onnx_says_the_same(scalars: int, loose: bool) -> None:
    groups = GROUPS if loose else (*GROUPS, ("rest", ((9, 10, 11),)))
    spec = replace(SPEC, scalars=scalars, token_groups=groups)
    module = shaken(network(), spec)
    planes, counts = torch.rand(7, 2, 1, 6).round(), torch.rand(7, scalars)
    inputs = {"planes": planes.numpy()} | ({"scalars": counts.numpy()} if scalars else {})
    found = onnxruntime.InferenceSession(to_onnx(module), providers=["CPUExecutionProvider"]).run(["logits", "values"], inputs)
    with torch.inference_mode():
        for one, other in zip(found, module(planes, counts), strict=True):
            assert np.allclose(one, other.numpy(), atol=1e-5)


def test_groups_that_the_game_does_not_declare_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"names 'tail', which is no token group of the game; it declares left, right"):
        build(network(encoders={"tail": 1}), SPEC)
    with pytest.raises(ConfigError, match="this one declares none"):
        build(network(encoders={}), games.load("othello"))
    with pytest.raises(ConfigError, match=r"network\.channels = 18 is no multiple of network\.heads = 4"):
        build(network(channels=18), SPEC)
    with pytest.raises(ValidationError, match="encoders is of kind = 'structured'; a network of kind 'mlp' has none"):
        NetworkConfig(kind="mlp", encoders={"left": 1})


def own_game(token_groups: Any) -> AdaptedGame:
    position = SimpleNamespace(
        current_player=lambda: 0, is_terminal=lambda: False, legal_actions=lambda: [0], observation_tensor=lambda _: np.zeros(12)
    )
    rules = SimpleNamespace() if token_groups is None else SimpleNamespace(token_groups=token_groups)
    return AdaptedGame("own", {}, lambda: position, players=2, actions=5, rules=rules)


def test_a_game_in_python_declares_groups() -> None:
    game = own_game(lambda: {"dice": np.arange(6).reshape(2, 3), "board": [[6], [7]]})
    spec = NetSpec.of(game)
    assert spec.token_groups == (("dice", ((0, 1, 2), (3, 4, 5))), ("board", ((6,), (7,))))
    module = build(network(encoders={"dice": 1}), spec)
    assert module(torch.zeros(3, 1, 1, 12), torch.zeros(3, 0))[0].shape == (3, 5)
    assert own_game(None).token_groups() == {}


@pytest.mark.parametrize(
    "wrong", [{"dice": [[12]]}, {"dice": [[-1]]}, {"dice": [0, 1]}, {"dice": [[0.5]]}, {"dice": np.zeros((0, 2), int)}, {"Dice!": [[0]]}]
)
def test_a_group_that_is_none_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(GameContractError, match=r"token group '(dice|Dice!)' is no array \(tokens, bits\) of places among the 12 bits"):
        own_game(lambda: wrong)
    with pytest.raises(GameContractError, match="gives no arrays by name"):
        own_game(lambda: [[0]])
