"""The search's settings over a run."""

from __future__ import annotations

import pytest

from azq.config import SearchConfig, SearchStage
from azq.search.search import exploring, largest_budget, search_at, strongest

STAGED = SearchConfig(num_simulations=16, schedule=(SearchStage(at=0.3, num_simulations=32), SearchStage(at=0.7, num_simulations=64)))


@pytest.mark.parametrize(("progress", "budget"), [(0.0, 16), (0.29, 16), (0.3, 32), (0.69, 32), (0.7, 64), (1.0, 64)])
def test_the_budget_is_that_of_the_last_stage_that_has_begun(progress: float, budget: int) -> None:
    now = search_at(STAGED, progress)
    assert now.num_simulations == budget
    assert now == STAGED.model_copy(update={"num_simulations": budget, "schedule": ()})


@pytest.mark.parametrize(("samples", "budget"), [(0, 16), (99, 16), (100, 32), (1_000, 64), (9_999, 64)])
def test_stages_by_samples_need_no_horizon(samples: int, budget: int) -> None:
    stages = (SearchStage(samples=100, num_simulations=32), SearchStage(samples=1_000, num_simulations=64))
    for progress in (0.0, 1.0):
        assert search_at(SearchConfig(num_simulations=16, schedule=stages), progress, samples).num_simulations == budget


def test_without_stages_nothing_changes() -> None:
    assert search_at(SearchConfig(), 0.9) == SearchConfig()


def test_the_core_takes_settings_with_stages() -> None:
    assert exploring(search_at(STAGED, 0.5)).num_simulations == 32
    assert strongest(STAGED, 400).num_simulations == 400


def test_the_largest_budget_is_that_of_any_stage() -> None:
    assert [largest_budget(search) for search in (SearchConfig(num_simulations=7), STAGED)] == [7, 64]
