"""azq._core against the plain Python search, bit for bit, over whole games."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import NO_ACTIONS, Driver
from reference.evaluator import HashEvaluator
from reference.search import ReferenceGame

from azq import games
from azq._core import Search

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
    "gumbel, 4 leaves": dataclasses.replace(GUMBEL, leaves_per_step=4, num_simulations=40),
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize(("name", "uids"), [("connect_four", (5,)), ("tic_tac_toe", (1, 2**40 + 3))])
def test_statistics_of_every_ply_equal_the_reference(name: str, uids: tuple[int, ...], settings: Settings) -> None:
    game = games.load(name)
    evaluate = HashEvaluator(game.num_distinct_actions())
    for uid in uids:
        search = Search(game, settings.core(), num_slots=1, seed=2**40 + 11, autoplay=False)
        driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=evaluate)
        search.start(0, uid, NO_ACTIONS)
        reference = ReferenceGame(game, settings, seed=2**40 + 11, uid=uid, evaluate=evaluate)
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
            reference.play(found.action)
            search.play(0, found.action)
            assert search.record(0).simulations[-1] == max(1, expected.simulations)
        assert search.finished_slots() == [0]


@pytest.mark.parametrize("settings", [PUCT, GUMBEL, dataclasses.replace(PUCT, leaves_per_step=3)], ids=["puct", "gumbel", "3 leaves"])
def test_a_self_played_record_equals_the_reference(settings: Settings) -> None:
    game = games.load("connect_four")
    settings = dataclasses.replace(settings, random_opening_plies=3)
    evaluate = HashEvaluator(7, seed=4)
    search = Search(game, settings.core(), num_slots=3, seed=6)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=evaluate)
    record = driver.play([100, 200, 300])[1]
    reference = ReferenceGame(game, settings, seed=6, uid=200, evaluate=evaluate)
    reference.play_random_opening()
    assert record.simulations[:3].tolist() == [0, 0, 0]
    assert not record.policies[:3].any()
    assert record.actions[:3].tolist() == reference.state.history()
    for ply in range(3, len(record.actions)):
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
