"""Levels: every wanted strength has one, stronger ones are not weaker, and chance in the choice follows the policy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.arena.levels import FEWEST, Level, best_version, drawn, ladder, nearest
from azq.errors import NotFound
from azq.ratings.elo import Rating


def rating(player: str, elo: float) -> Rating:
    return Rating(player, elo, elo - 50, elo + 50, 40, 20.0)


ratings = st.dictionaries(st.integers(1, 40), st.floats(-500, 2500), max_size=12).map(
    lambda found: [rating(f"weights:{version}", elo) for version, elo in found.items()]
)


@given(ratings, st.integers(1, 800), st.integers(1, 3200))
def test_a_ladder_rises_and_keeps_to_the_budget(found: list[Rating], num_simulations: int, most: int) -> None:
    levels = ladder([*found, rating("uct:100", 0.0)], num_simulations, most)
    assert bool(levels) == bool(found)
    assert [level.elo for level in levels] == sorted(level.elo for level in levels)
    assert all(1 <= level.num_simulations <= max(most, FEWEST) for level in levels)
    assert {level.weight_version for level in levels} <= {int(one.player.partition(":")[2]) for one in found}
    if levels:
        assert levels[-1].weight_version == best_version(found)
        assert all(abs(nearest(levels, level.elo).elo - level.elo) < 1e-9 for level in levels)


def test_measured_rungs_are_versions_that_gained_strength() -> None:
    found = [rating("weights:1", 100.0), rating("weights:2", 80.0), rating("weights:3", 400.0), rating("random", -300.0)]
    levels = ladder(found, 64, 256)
    assert [(level.weight_version, level.num_simulations) for level in levels if level.measured] == [(1, 64), (3, 64)]
    assert [level.num_simulations for level in levels if not level.measured][-2:] == [128, 256]
    assert all(level.temperature > 0 for level in levels if level.elo < 100)


def test_a_run_without_ratings_has_no_levels() -> None:
    assert best_version([rating("uct:100", 0.0)]) is None
    with pytest.raises(NotFound, match="no levels"):
        nearest([], 900.0)
    assert nearest([Level(0.0, 1, 8), Level(100.0, 2, 8)], 49.0).weight_version == 1


def test_moves_are_drawn_by_policy_and_temperature() -> None:
    luck = random.Random(1)
    counts = [sum(drawn([0.0, 0.2, 0.8], temperature, luck) == 2 for _ in range(2000)) for temperature in (0.2, 1.0, 5.0)]
    assert counts[0] > 1980
    assert counts[1] == pytest.approx(1600, abs=80)
    assert 1000 < counts[2] < 1250
    assert all(drawn([0.0, 0.5, 0.5], 9.0, luck) for _ in range(100))
