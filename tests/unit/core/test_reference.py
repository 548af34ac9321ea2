"""azq._core against the plain Python search, bit for bit, over whole games."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import NO_ACTIONS, Driver
from reference.evaluator import HashEvaluator
from reference.search import ReferenceGame

from azq import games
from azq._core import Search
from azq.search.search import leaves_at_once

PUCT = Settings("puct", 24)
GUMBEL = Settings("gumbel", 24)

CASES = {
    "puct": PUCT,
    "puct, no reuse": dataclasses.replace(PUCT, reuse_subtree=False),
    "puct, no noise, greedy": dataclasses.replace(PUCT, dirichlet_fraction=0.0, temperature_plies=0),
    "puct, small alpha, cold": dataclasses.replace(PUCT, dirichlet_alpha=0.3, temperature=0.5, temperature_plies=99),
    "puct, 2 leaves": dataclasses.replace(PUCT, leaves_per_step=2),
    "puct, 4 leaves": dataclasses.replace(PUCT, leaves_per_step=4, num_simulations=40),
    "puct, 16 leaves, no reuse": dataclasses.replace(PUCT, leaves_per_step=16, num_simulations=40, reuse_subtree=False),
    "puct, strong exploration": dataclasses.replace(PUCT, c_puct=5.0, fpu_reduction=0.0, num_simulations=60),
    "gumbel": GUMBEL,
    "gumbel, no reuse": dataclasses.replace(GUMBEL, reuse_subtree=False),
    "gumbel, 4 considered": dataclasses.replace(GUMBEL, max_considered_actions=4, num_simulations=32),
    "gumbel, 1 considered": dataclasses.replace(GUMBEL, max_considered_actions=1),
    "gumbel, no noise": dataclasses.replace(GUMBEL, gumbel_scale=0.0),
    "gumbel, 5 simulations": dataclasses.replace(GUMBEL, num_simulations=5),
    "gumbel, flat sigma": dataclasses.replace(GUMBEL, c_scale=0.1, num_simulations=50),
    "gumbel, the range seen": dataclasses.replace(GUMBEL, q_range=0.1, c_scale=0.1),
    "puct, the range seen": dataclasses.replace(PUCT, q_range=0.3),
    "gumbel, 4 leaves": dataclasses.replace(GUMBEL, leaves_per_step=4, num_simulations=40),
    "gumbel, children at once": dataclasses.replace(GUMBEL, batch_root=True),
    "gumbel, 3 candidates at once, 2 leaves": dataclasses.replace(GUMBEL, batch_root=True, leaves_per_step=2, max_considered_actions=3),
    "puct, children at once": dataclasses.replace(PUCT, batch_root=True),
    "gumbel, decisive moves": dataclasses.replace(GUMBEL, decisive_moves=True),
    "gumbel, decisive moves, children at once": dataclasses.replace(GUMBEL, decisive_moves=True, batch_root=True),
    "puct, decisive moves, 4 leaves": dataclasses.replace(PUCT, decisive_moves=True, leaves_per_step=4, num_simulations=40),
    "puct, children at once, 4 leaves": dataclasses.replace(PUCT, batch_root=True, leaves_per_step=4, num_simulations=40),
}


def assert_equal_game(name: str, settings: Settings, evaluate: HashEvaluator, *, seed: int, uid: int, rng: random.Random | None) -> None:
    """Plays one game in step with the reference; now and then a random action where `rng` is given."""
    game = games.load(name)
    search = Search(game, settings.core(), num_slots=1, seed=seed, autoplay=False)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=leaves_at_once(settings.core(), game), evaluate=evaluate)
    search.start(0, uid, NO_ACTIONS)
    reference = ReferenceGame(game, settings, seed=seed, uid=uid, evaluate=evaluate)
    while not reference.state.is_terminal():
        expected = reference.search()
        driver.run()
        assert search.idle_slots() == [0]
        found = search.result(0)
        np.testing.assert_array_equal(found.visit_counts, expected.visit_counts)
        np.testing.assert_array_equal(found.q_values, expected.q_values)
        np.testing.assert_array_equal(found.policy, expected.policy)
        assert found.root_value == expected.decision.root_value
        assert found.proven == expected.decision.proven
        assert found.action == expected.decision.action
        assert found.best_action == expected.decision.best_action
        surprise = rng is not None and rng.random() < 0.3
        action = rng.choice(reference.state.legal_actions()) if rng is not None and surprise else found.action
        reference.play(action)
        search.play(0, action)
        assert search.record(0).simulations[-1] == max(1, expected.simulations)
    assert search.finished_slots() == [0]


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize(("name", "uid"), [("connect_four", 5), ("tic_tac_toe", 1), ("tic_tac_toe", 2**40 + 3)])
def test_statistics_of_every_ply_equal_the_reference(name: str, uid: int, settings: Settings) -> None:
    evaluate = HashEvaluator(games.load(name).num_distinct_actions())
    assert_equal_game(name, settings, evaluate, seed=2**40 + 11, uid=uid, rng=None)


@pytest.mark.parametrize("number", range(40))
def test_any_settings_equal_the_reference(number: int) -> None:
    rng = random.Random(number)
    settings = Settings(
        rng.choice(["puct", "gumbel"]),
        rng.choice([1, 2, 3, 8, 17, 40]),
        leaves_per_step=rng.choice([1, 1, 2, 3, 7, 20]),
        reuse_subtree=rng.random() < 0.7,
        max_considered_actions=rng.choice([1, 2, 3, 5, 16]),
        gumbel_scale=rng.choice([0.0, 1.0, 2.0]),
        c_visit=rng.choice([50.0, 5.0]),
        c_scale=rng.choice([1.0, 0.1]),
        c_puct=rng.choice([0.5, 1.5, 5.0]),
        fpu_reduction=rng.choice([0.0, 0.25, 1.0]),
        dirichlet_alpha=rng.choice([0.1, 0.3, 1.0, 5.0]),
        dirichlet_fraction=rng.choice([0.0, 0.25, 1.0]),
        temperature=rng.choice([0.0, 0.5, 1.0, 3.0]),
        temperature_plies=rng.choice([0, 3, 50]),
        batch_root=rng.random() < 0.3,
        decisive_moves=rng.random() < 0.4,
    )
    name = rng.choice(["connect_four", "tic_tac_toe", "tic_tac_toe"])
    spread = rng.choice([0.0, 1.0, 5.0, 50.0])
    evaluate = HashEvaluator(games.load(name).num_distinct_actions(), seed=number, spread=spread)
    assert_equal_game(name, settings, evaluate, seed=rng.randrange(2**63), uid=rng.randrange(2**64), rng=rng)


@pytest.mark.parametrize("settings", [PUCT, GUMBEL, dataclasses.replace(PUCT, leaves_per_step=3)], ids=["puct", "gumbel", "3 leaves"])
def test_a_self_played_record_equals_the_reference(settings: Settings) -> None:
    game = games.load("connect_four")
    settings = dataclasses.replace(settings, random_opening_plies=3)
    evaluate = HashEvaluator(7, seed=4)
    search = Search(game, settings.core(), num_slots=3, seed=6)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=evaluate)
    record = driver.play([100, 201, 300])[1]
    reference = ReferenceGame(game, settings, seed=6, uid=201, evaluate=evaluate)
    reference.play_random_opening()
    opening = len(reference.state.history())
    assert 0 < opening <= 3  # drawn for this uid
    assert not record.simulations[:opening].any()
    assert not record.policies[:opening].any()
    assert record.actions[:opening].tolist() == reference.state.history()
    for ply in range(opening, len(record.actions)):
        expected = reference.search()
        assert record.actions[ply] == expected.decision.action
        np.testing.assert_array_equal(record.policies[ply], expected.policy.astype(np.float16))
        assert record.root_values[ply, 0] == expected.decision.root_value
        assert record.simulations[ply] == max(1, expected.simulations)
        assert record.weight_versions[ply] == 7
        reference.play(int(record.actions[ply]))
    assert reference.state.is_terminal()
    assert record.terminal
    assert record.returns.tolist() == reference.state.returns()
