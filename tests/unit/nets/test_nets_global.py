"""Heads that know no board size: where games say their actions lie, what such networks answer, and whom they refuse."""

from __future__ import annotations

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
from azq.config import NetworkConfig
from azq.errors import ConfigError, GameContractError
from azq.games.adapter import AdaptedGame
from azq.nets import NetSpec, build, load_into, unpack
from azq.nets.network import pooled
from azq.nets.onnx import to_onnx
from azq.parts.volunteers.model_maker import probe_positions

LAYOUTS = [
    ("connect_four", {}, "columns"),
    ("tic_tac_toe", {}, "cells"),
    ("othello", {"size": 6}, "cells"),
    ("gomoku", {"size": 9}, "cells"),
    ("gomoku", {"size": 9, "swap2": True}, "cells"),
    ("hex", {"size": 5, "swap": True}, "cells"),
    ("backgammon", {}, ""),
    ("blob", {}, ""),
    ("beasty_bar", {}, ""),
]
ON_BOARD = [(name, params) for name, params, layout in LAYOUTS if layout]


def network(blocks: int = 2, channels: int = 16, **settings: Any) -> NetworkConfig:
    return NetworkConfig(kind="resnet", blocks=blocks, channels=channels, global_heads=True, **settings)


def inputs(game: Any, spec: NetSpec, count: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    return unpack(torch.from_numpy(probe_positions(game, count)), spec)


@pytest.mark.parametrize(("name", "params", "layout"), LAYOUTS)
def test_an_action_lies_where_the_game_says_it_does(name: str, params: dict[str, Any], layout: str) -> None:
    game = games.load(name, **params)
    spec = NetSpec.of(game)
    assert game.action_layout() == layout
    on_board = spec.action_planes * spec.action_places
    assert on_board <= spec.num_actions < on_board + max(1, spec.action_places) or not layout
    for symmetry in range(game.num_symmetries() if layout else 0):
        actions, cells = game.action_permutation(symmetry), game.plane_permutation(symmetry)
        places = np.arange(spec.cells) % spec.action_places
        moved = np.empty(spec.cells, np.int64)
        moved[cells] = np.arange(spec.cells)  # where the symmetry takes a cell
        for plane in range(spec.action_planes):
            found = actions[plane * spec.action_places + places] - plane * spec.action_places
            assert np.array_equal(found, moved % spec.action_places)
        assert np.array_equal(np.sort(actions[on_board:]), np.arange(on_board, spec.num_actions))


@pytest.mark.parametrize(("name", "params"), ON_BOARD)
def test_a_move_marks_its_cell_or_column(name: str, params: dict[str, Any]) -> None:
    game = games.load(name, **params)
    spec, start = NetSpec.of(game), game.new_initial_state()
    for action in start.legal_actions():
        state = start.clone()
        state.apply_action(action)
        empty, played = (one.observation_tensor(0)[:2].reshape(2, -1) for one in (start, state))
        changed = np.flatnonzero((empty != played).any(axis=0)) % spec.action_places
        assert action % spec.action_places in changed


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([("gomoku", 9, 11), ("hex", 5, 7), ("othello", 6, 8)]), st.integers(0, 99), st.sampled_from([(), ("advantage",)]))
def test_weights_of_one_board_fit_another(sizes: tuple[str, int, int], seed: int, auxiliary: Any) -> None:
    name, small, large = sizes
    config = network(auxiliary=auxiliary)
    source = shaken(config, NetSpec.of(games.load(name, size=small)), seed)
    game = games.load(name, size=large)
    module = build(config, game)
    load_into(module, source.state_dict())
    said = module.forward_all(*inputs(game, module.spec))
    assert said.logits.shape == (9, game.num_distinct_actions())
    assert (said.advantage is None) == (not auxiliary)
    assert torch.isfinite(said.logits).all()
    assert said.logits.std(dim=1).min() > 0


@pytest.mark.parametrize(("name", "params"), ON_BOARD)
def test_a_logit_is_what_its_place_and_the_pooled_board_say(name: str, params: dict[str, Any]) -> None:
    game = games.load(name, **params)
    module: Any = shaken(network(), NetSpec.of(game))
    spec, (planes, scalars) = module.spec, inputs(game, module.spec)
    with torch.inference_mode():
        board, _ = module.features(planes, scalars)
        logits = module(planes, scalars)[0]
        weight, bias = module.policy.weight, module.policy.bias
        columns = board.mean(2) if spec.action_layout == "columns" else board.flatten(2)
        expected = (torch.einsum("ak,bkc->bac", weight, columns) + bias[:, None]).flatten(1)
        if module.policy.beyond is not None:
            expected = torch.cat((expected, module.policy.beyond(pooled(board))), 1)
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize(("name", "params"), ON_BOARD[:3])  # columns, cells, and cells with a pass beyond them
def test_onnx_says_the_same(name: str, params: dict[str, Any]) -> None:
    game = games.load(name, **params)
    module = shaken(network(), NetSpec.of(game))
    planes, scalars = inputs(game, module.spec)
    with torch.inference_mode():
        logits, values = (output.numpy() for output in module(planes, scalars))
    session = onnxruntime.InferenceSession(to_onnx(module), providers=["CPUExecutionProvider"])
    found = session.run(["logits", "values"], {"planes": planes.numpy()})
    assert np.abs(found[0] - logits).max() <= 1e-5 * np.abs(logits).max()
    assert np.abs(found[1] - values).max() <= 1e-5


def test_it_begins_undecided_and_learns() -> None:
    spec = NetSpec.of(games.load("othello", size=6))
    module = build(network(), spec, seed=1)
    planes = torch.randint(0, 2, (16, spec.planes, 6, 6), generator=torch.Generator().manual_seed(1)).float()
    logits, values = module(planes, torch.zeros(16, 0))
    assert not logits.any()
    assert not values.any()
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    first = None
    for _ in range(60):
        logits, values = module(planes, torch.zeros(16, 0))
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(16) + 21) + (values - 0.5).square().mean()
        first = first or loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5 * first, "of passes too: the last target is one"


def test_compiled_it_trains_and_evaluates_alike() -> None:
    spec = NetSpec.of(games.load("tic_tac_toe"))
    module = shaken(network(1, 8), spec)
    compiled: Any = torch.compile(module, backend="aot_eager", fullgraph=True)
    planes = torch.randint(0, 2, (5, spec.planes, 3, 3)).float()
    for one, other in zip(module(planes, torch.zeros(5, 0)), compiled(planes, torch.zeros(5, 0)), strict=True):
        torch.testing.assert_close(one, other)


def test_games_and_networks_that_have_none_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="says where its actions lie on the board"):
        build(network(), games.load("backgammon"))
    with pytest.raises(ValidationError, match="a network of kind 'mlp' has none"):
        NetworkConfig(kind="mlp", global_heads=True)


@pytest.mark.parametrize(("layout", "fits"), [("cells", False), ("columns", True), ("hexes", False), ("", True)])
def test_a_game_in_python_declares_its_layout(layout: str, fits: bool) -> None:
    position = SimpleNamespace(is_terminal=lambda: False, current_player=lambda: 0, observation_tensor=lambda player: np.zeros((2, 3, 4)))

    def made() -> AdaptedGame:
        return AdaptedGame("own", {}, lambda: position, players=2, actions=5, rules=SimpleNamespace(action_layout=layout))

    if fits:
        assert made().action_layout() == layout
    else:
        with pytest.raises(GameContractError, match="action_layout"):
            made()
