"""Properties of the Gumbel search that the paper promises."""

from __future__ import annotations

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import NO_ACTIONS, Driver
from reference.evaluator import HashEvaluator
from reference.gumbel import considered_visits

from azq._core import Game, Result, Search


def search_start(game: Game, settings: Settings, *, uid: int = 1) -> Result:
    search = Search(game, settings.core(), num_slots=1, seed=4, autoplay=False)
    search.start(0, uid, NO_ACTIONS)
    Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=HashEvaluator(game.num_distinct_actions(), seed=3)).run()
    return search.result(0)


def test_the_schedule_halves() -> None:
    assert considered_visits(4, 8) == [0, 0, 0, 0, 1, 1, 2, 2]
    assert considered_visits(1, 3) == [0, 1, 2]
    assert considered_visits(8, 5) == [0, 0, 0, 0, 0]


@pytest.mark.parametrize(("considered", "simulations"), [(7, 32), (4, 16), (2, 9), (1, 5), (16, 64)])
def test_root_visits_follow_the_schedule(considered: int, simulations: int, connect_four: Game) -> None:
    visits = search_start(connect_four, Settings("gumbel", simulations, max_considered_actions=considered)).visit_counts
    expected = [0] * 7
    for considered_visit in considered_visits(min(considered, 7), simulations):
        expected[expected.index(considered_visit)] += 1
    assert sorted(visits) == sorted(expected)


def test_candidates_are_drawn_from_the_prior(connect_four: Game) -> None:
    """Gumbel-top-1 is a draw from softmax(logits): its frequencies are the prior's."""
    settings = Settings("gumbel", 1, max_considered_actions=1)
    evaluate = HashEvaluator(7, seed=3)
    search = Search(connect_four, settings.core(), num_slots=4000, seed=4, autoplay=False)
    for slot in range(4000):
        search.start(slot, slot, NO_ACTIONS)
    Driver(search, packed_size=11, leaves_per_step=1, evaluate=evaluate).run()
    drawn = np.bincount([search.result(slot).action for slot in range(4000)], minlength=7) / 4000
    logits = search.result(0).prior_logits
    prior = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(drawn, prior, atol=0.03)


def test_without_noise_the_best_action_is_played(connect_four: Game) -> None:
    for simulations in (3, 20, 100):
        result = search_start(connect_four, Settings("gumbel", simulations, gumbel_scale=0.0))
        assert result.action == result.best_action


def test_the_target_improves_on_the_prior(connect_four: Game) -> None:
    """The improved policy puts more weight on better q than the prior does (paper, section 4)."""
    result = search_start(connect_four, Settings("gumbel", 100, max_considered_actions=7))
    prior = np.exp(result.prior_logits) / np.exp(result.prior_logits).sum()
    assert result.policy @ result.q_values > prior @ result.q_values
    assert result.policy.sum() == pytest.approx(1.0)
