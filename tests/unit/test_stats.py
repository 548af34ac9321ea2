"""Intervals and tests against closed forms, symmetries and simulations; the sequential test errs as rarely as it promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.errors import ConfigError
from azq.stats import chance_of_sum, chi_square_chance, expected_score, holm, paired_interval, rank_sum_chance, sequential_test, wilson

COUNTS = st.integers(0, 2_000)
MATCHES = 400
STEP, MOST_GAMES = 40, 20_000


def verdicts(elo: float, elo0: float, elo1: float, draw: float, seed: int, seats: int = 2) -> list[str]:
    """Of simulated matches between players so far apart, each played until it is decided."""
    rng, score = np.random.default_rng(seed), expected_score(elo, seats)
    found: list[str] = []
    chances = (score - draw / 2, draw, 1 - score - draw / 2)
    for _ in range(MATCHES):
        played = np.cumsum(rng.multinomial(STEP, chances, MOST_GAMES // STEP), axis=0)
        told = (sequential_test(wins, draws, losses, elo0, elo1, seats=seats).verdict for wins, draws, losses in played.tolist())
        found.append(next((verdict for verdict in told if verdict != "open"), "open"))
    return found


@pytest.mark.parametrize("draw", [0.0, 0.1, 0.6])
@pytest.mark.parametrize(("elo0", "elo1"), [(0.0, 60.0), (-40.0, 40.0)])
def test_errors_are_as_rare_as_promised(draw: float, elo0: float, elo1: float) -> None:
    weak, strong = (verdicts(elo, elo0, elo1, draw, seed=7) for elo in (elo0, elo1))
    assert "open" not in weak + strong
    noise = 3 * math.sqrt(0.05 * 0.95 / MATCHES)  # of a count in so many matches
    assert weak.count("accepted") / MATCHES <= 0.05 + noise
    assert strong.count("rejected") / MATCHES <= 0.05 + noise


def test_with_four_seats_equals_win_one_game_in_four() -> None:
    assert expected_score(0, seats=4) == 0.25
    assert verdicts(0, 0, 80, 0.0, seed=3, seats=4).count("rejected") >= 0.9 * MATCHES
    assert verdicts(80, 0, 80, 0.0, seed=3, seats=4).count("accepted") >= 0.9 * MATCHES


def test_without_draws_it_is_walds_test_of_a_share() -> None:
    score0, score1 = expected_score(0), expected_score(50)
    exact = 120 * math.log(score1 / score0) + 80 * math.log((1 - score1) / (1 - score0))
    assert sequential_test(120, 0, 80, 0, 50).llr == pytest.approx(exact, rel=1e-3)


def test_with_draws_it_is_the_ratio_of_the_greatest_likelihoods() -> None:
    """Of each score, over all shares of draws that go with it."""

    def likelihood(score: float) -> float:
        draws = np.linspace(1e-4, 2 * min(score, 1 - score) - 1e-4, 100_001)
        return float(np.max(30 * np.log(score - draws / 2) + 40 * np.log(draws) + 20 * np.log(1 - score - draws / 2)))

    exact = likelihood(expected_score(30)) - likelihood(expected_score(0))
    assert sequential_test(30, 40, 20, 0, 30).llr == pytest.approx(exact, abs=1e-5)


@given(COUNTS, COUNTS, COUNTS)
def test_seen_from_the_other_side_it_tells_the_opposite(wins: int, draws: int, losses: int) -> None:
    one, other = sequential_test(wins, draws, losses, -10, 30, 0.05, 0.1), sequential_test(losses, draws, wins, -30, 10, 0.1, 0.05)
    assert one.llr == pytest.approx(-other.llr, abs=1e-6)
    assert (one.lower, one.upper) == pytest.approx((-other.upper, -other.lower))


@given(COUNTS, COUNTS, COUNTS)
def test_another_win_never_speaks_for_the_weaker(wins: int, draws: int, losses: int) -> None:
    tests = [sequential_test(wins + more, draws, losses, 0, 20).llr for more in (0, 1, 2)]
    assert all(before <= after + 1e-6 for before, after in pairwise(tests))


def test_nothing_played_is_open_between_walds_bounds() -> None:
    empty = sequential_test(0, 0, 0, 0, 10)
    assert (empty.llr, empty.verdict) == (0.0, "open")
    assert (empty.lower, empty.upper) == pytest.approx((-2.944, 2.944), abs=1e-3)


@pytest.mark.parametrize(("elo0", "elo1", "alpha"), [(10.0, 10.0, 0.05), (20.0, 10.0, 0.05), (0.0, 10.0, 0.0), (0.0, 10.0, 0.5)])
def test_what_can_decide_nothing_is_refused(elo0: float, elo1: float, alpha: float) -> None:
    with pytest.raises(ConfigError, match="sequential test"):
        sequential_test(1, 1, 1, elo0, elo1, alpha)


@pytest.mark.parametrize(("alpha", "beta"), [(0.05, 0.0), (0.05, 0.5), (-0.1, 0.05), (0.05, 0.9)])
def test_rates_of_error_that_are_none_are_refused(alpha: float, beta: float) -> None:
    with pytest.raises(ConfigError, match=f"not alpha {alpha:g} and beta {beta:g}"):
        sequential_test(1, 1, 1, 0.0, 10.0, alpha, beta)


def test_four_hundred_elo_are_ten_to_one() -> None:
    assert [expected_score(elo) for elo in (-400, 0, 400)] == pytest.approx([1 / 11, 0.5, 10 / 11])
    assert expected_score(400, seats=3) == pytest.approx(1 / 1.2)


@given(st.integers(0, 50), st.integers(1, 50))
def test_an_interval_holds_its_share(successes: int, more: int) -> None:
    low, high = wilson(successes, successes + more)
    assert 0.0 <= low <= successes / (successes + more) <= high <= 1.0


@pytest.mark.parametrize(
    ("successes", "tries", "low", "high"), [(23, 600, 0.02567, 0.05687), (0, 100, 0.0, 0.03699), (100, 100, 0.96301, 1.0), (0, 0, 0.0, 1.0)]
)
def test_intervals_are_wilsons(successes: int, tries: int, low: float, high: float) -> None:
    assert wilson(successes, tries) == pytest.approx((low, high), abs=1e-5)


def test_an_interval_of_equal_pairs_has_no_width_and_a_single_one_no_bound() -> None:
    assert paired_interval(np.zeros(9)) == (0.0, 0.0, 0.0)
    mean, low, high = paired_interval(np.array([1.0, 0.0, 0.0, 1.0]))
    assert mean == 0.5
    assert low == pytest.approx(0.5 - 1.959964 * np.sqrt(1 / 3) / 2)
    assert high - mean == pytest.approx(mean - low)
    assert paired_interval(np.array([1.0]))[1:] == (float("-inf"), float("inf"))


def test_the_chance_of_a_sum_counts_signs() -> None:
    assert chance_of_sum([1.0] * 8) == 1 / 256
    assert chance_of_sum([-1.0] * 8) == 1.0
    assert chance_of_sum([0.0] * 4) == 1.0
    assert chance_of_sum([3.0, -1.0]) == 0.5


def test_rank_sums_against_all_ways_to_deal() -> None:
    assert rank_sum_chance([1, 2], [3, 4]) == pytest.approx(1 / 6)
    assert rank_sum_chance([1, 4], [2, 3]) == pytest.approx(4 / 6)
    assert rank_sum_chance([1, 2], [2, 3]) == pytest.approx(2 / 6)  # equals share the mean of their ranks
    assert rank_sum_chance([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(1 / 252)


def test_chi_square_of_few_degrees_of_freedom() -> None:
    assert chi_square_chance(9.0, 0) == 1.0
    assert chi_square_chance(3.841459, 1) == pytest.approx(0.05, abs=1e-6)
    assert chi_square_chance(5.991465, 2) == pytest.approx(0.05, abs=1e-6)


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), min_size=1, max_size=9))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: dict[str, float]) -> None:
    corrected = holm(p_values)
    order: Sequence[str] = sorted(p_values, key=lambda name: p_values[name])
    assert all(p_values[name] <= corrected[name] <= 1 for name in p_values)
    assert [corrected[name] for name in order] == sorted(corrected.values())
    assert corrected[order[0]] == min(1.0, len(p_values) * p_values[order[0]])
