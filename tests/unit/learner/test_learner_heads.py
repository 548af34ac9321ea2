"""The trainer teaches every head what samples say, and only where they say something."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np
import pytest
import torch
from learner_doubles import SecretSum, train
from replay_games import drawn_from, play_game, samples_of_one

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.errors import ConfigError
from azq.games import Game
from azq.learner.step.loss import Symmetries, Targets, all_losses, weighted
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, Outputs, build
from azq.parts.lab.bench.learner import full_window
from azq.replay.samples import Columns
from azq.replay.window import Window

CPU = torch.device("cpu")
ALL = ("advantage", "margin", "hidden")


def trainer_for(game, auxiliary, *, kind="mlp", symmetries=None, **options):
    config = LearnerConfig(**{"precision": "float32", "warmup_steps": 5, "learning_rate": 5e-3, "ema_decay": 0.9, **options})
    spec = NetSpec.of(game)
    module = build(NetworkConfig(kind=kind, blocks=1, channels=32, heads=4, auxiliary=auxiliary), spec, seed=1)
    return Trainer(module, spec, config, CPU, symmetries)


def window_of(game, auxiliary, count=200):
    columns = Columns.of(game, auxiliary)
    window = Window(game, 5000, columns)
    for uid in range(1, count):
        window.add(samples_of_one(game, play_game(game, uid), 0.0, columns))
    return window


@pytest.mark.parametrize("kind", ["resnet", "mlp", "transformer", "structured"])
@pytest.mark.parametrize("players", [2, 3])
def test_every_loss_falls(kind, players):
    game = SecretSum(players)
    window, trainer, rng = window_of(game, ALL), trainer_for(game, ALL, kind=kind), np.random.default_rng(0)
    train(trainer, drawn_from(window, rng, 64, 5000), rng)
    first = trainer.mean_losses()
    for _ in range(80):
        train(trainer, drawn_from(window, rng, 64, 5000), rng)
    trainer.reset_losses()
    for _ in range(10):
        train(trainer, drawn_from(window, rng, 64, 5000), rng)
    last = trainer.mean_losses()
    assert set(first.others) == set(ALL) | ({"outcome"} if players == 2 else set())
    assert last.value < 0.8 * first.value
    assert all(last.others[head] < first.others[head] for head in first.others)
    assert last.others["margin"] < 0.5 * first.others["margin"]


def test_a_symmetry_turns_what_was_played_with_the_policy():
    symmetries = Symmetries(games.load("connect_four"), CPU)
    played = torch.tensor([0, 3, 5])
    assert symmetries.action(played, torch.zeros(3, dtype=torch.int64)).tolist() == played.tolist()
    assert symmetries.action(played, torch.ones(3, dtype=torch.int64)).tolist() == [6, 3, 1]
    game = games.load("tic_tac_toe")
    symmetries = Symmetries(game, CPU)
    for symmetry in range(symmetries.count):
        chosen = torch.full((9,), symmetry)
        one_hot = symmetries.actions(torch.eye(9), chosen)
        assert one_hot.argmax(1).tolist() == symmetries.action(torch.arange(9), chosen).tolist()


def test_hidden_facts_and_symmetries_do_not_go_together():
    class Mirrored(SecretSum):
        def num_symmetries(self):
            return 2

    game = cast(Game, Mirrored(2))
    with pytest.raises(ConfigError, match=r"no symmetries; set learner\.symmetries = false"):
        trainer_for(game, ("hidden",), symmetries=Symmetries(game, CPU))
    trainer_for(game, ("margin",), symmetries=Symmetries(game, CPU))


def outputs_and_targets():
    generator = torch.Generator().manual_seed(0)
    outputs = Outputs(
        logits=torch.randn(4, 3, generator=generator),
        values=torch.zeros(4, 1),
        outcomes=torch.zeros(4, 2),
        advantage=torch.tensor([[1.0, -1.0, 0.0]] * 4),
        margin=torch.full((4,), 0.5),
        hidden=torch.zeros(4, 5),
    )
    targets = Targets(
        policies=torch.full((4, 3), 1 / 3),
        values=torch.ones(4, 1),
        legal=torch.ones(4, 3, dtype=torch.bool),
        played=torch.tensor([0, 0, 1, 2]),
        margin=torch.zeros(4),
        outcomes=torch.tensor([[1.0, 0.0]] * 4),
        hidden=torch.ones(4, 5),
    )
    return outputs, targets


def test_losses_by_hand():
    found = all_losses(*outputs_and_targets())
    assert float(found["value"]) == 1
    assert float(found["outcome"]) == pytest.approx(2 * np.log(2))
    assert float(found["advantage"]) == pytest.approx((0 + 0 + 4 + 1) / 4)  # values of actions are 1, -1 and 0, all were worth 1
    assert float(found["margin"]) == pytest.approx(0.25)
    assert float(found["hidden"]) == pytest.approx(np.log(2))
    wanted = float(found["policy"]) + 3.0 + 0.5 * 2 * np.log(2) + 0.25 * 1.25 + 0.25 * 0.25 + 0.5 * np.log(2)
    assert float(weighted(found, 3.0)) == pytest.approx(wanted)


def test_the_error_of_a_value_may_count_in_the_spread_of_its_targets():
    outputs, targets = outputs_and_targets()
    near = torch.tensor([[0.70], [0.72], [0.74], [0.76]])
    outputs, targets = outputs._replace(values=near + 0.01), dataclasses.replace(targets, values=near)
    spread = float(all_losses(outputs, targets, True)["value"])
    assert spread == pytest.approx(0.01**2 / near.var(unbiased=False).item(), rel=1e-3)
    scaled = outputs._replace(values=10 * near + 0.1), dataclasses.replace(targets, values=10 * near)
    assert float(all_losses(*scaled, True)["value"]) == pytest.approx(spread, rel=1e-3)
    alike = outputs._replace(values=torch.full((4, 1), 0.5)), dataclasses.replace(targets, values=torch.full((4, 1), 0.5))
    assert float(all_losses(*alike, True)["value"]) == 0


def test_values_of_actions_average_to_the_positions_under_the_policy():
    """Planted: one action wins and is played 9 times of 10, so the position is worth 0.8, and 0 to whom plays at random."""
    values, advantages = torch.zeros(1, requires_grad=True), torch.zeros(1, 2, requires_grad=True)
    policies, legal = torch.tensor([[0.9, 0.1]] * 10), torch.ones(10, 2, dtype=torch.bool)
    played = torch.tensor([0] * 9 + [1])
    targets = Targets(policies, 1.0 - 2.0 * played[:, None].float(), legal, played=played)
    optimiser = torch.optim.SGD([values, advantages], 0.3)
    for _ in range(300):
        outputs = Outputs(torch.zeros(10, 2), values.expand(10)[:, None], advantage=advantages.expand(10, -1))
        optimiser.zero_grad()
        all_losses(outputs, targets)["advantage"].backward()
        optimiser.step()
    assert values.item() == pytest.approx(0.8, abs=0.02)
    assert (advantages[0, 0] - advantages[0, 1]).item() == pytest.approx(2, abs=0.02)


def test_the_benchs_window_has_every_column():
    game = cast(Game, SecretSum(2))
    columns = Columns.of(game, ALL)
    window = full_window(game, NetSpec.of(game), 100, columns)
    batch = drawn_from(window, np.random.default_rng(0), 8, 100)
    assert all(getattr(batch, name) is not None for name in columns.shapes())
