"""A worker that plays differently is found, and healthy fleets are left alone, also small ones and those that meet many opponents."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.random import Generator

from azq.ratings.matches import WholeMatch, put_together
from azq.ratings.outliers import ERROR_RATE, outliers
from azq.wire.messages import MatchResult, MatchSpec

HEALTHY = (0.55, 0.1, 0.35)
WRONG_SIGN = (0.02, 0.03, 0.95)  # who takes every value for its opposite loses nearly all


def fleet_plays(
    rng: Generator, workers: list[str], matches: int, parts: int, games: int, wrong: str = "", chances: tuple[float, ...] = HEALTHY
) -> list[WholeMatch]:
    """Matches of which each part is played by any of the workers."""
    results = []
    for number in range(matches):
        for part in range(parts):
            worker = workers[rng.integers(len(workers))]
            wins, draws, losses = map(int, rng.multinomial(games, WRONG_SIGN if worker == wrong else chances))
            spec = MatchSpec(f"weights:{number}", "uct:100", games, 8, 0, number, part * games, parts * games)
            results.append(MatchResult(spec, spec.first, spec.second, wins, draws, losses, part, worker=worker))
    return put_together(results[::-1])


def hosts(count: int) -> list[str]:
    return [f"host{number}:{pid}" for number in range(count) for pid in (11, 12)]


def test_twenty_healthy_fleets_are_left_alone() -> None:
    rng = np.random.default_rng(1)
    for size in range(1, 21):
        for chances in (HEALTHY, (0.98, 0.01, 0.01), (1.0, 0.0, 0.0)):
            assert outliers(fleet_plays(rng, hosts(size), 6, 10, 100, chances=chances)) == []


@pytest.mark.parametrize("size", [3, 5, 20])
def test_a_worker_with_the_wrong_sign_of_values_is_found_and_nobody_else(size: int) -> None:
    rng = np.random.default_rng(size)
    sick = [name.replace("host1:12", "host1:11") for name in hosts(size)]  # the machine, whichever of its processes
    found = outliers(fleet_plays(rng, sick, 4, 2 * size, 50, wrong="host1:11"))
    assert [one.worker for one in found] == ["host1"]
    assert found[0].score < 0.1 < 0.5 < found[0].others_score
    assert found[0].chance < ERROR_RATE
    assert str(found[0]).startswith("host1 differs from the others in results by more than chance: ")


def test_two_sick_machines_are_found_one_after_the_other() -> None:
    rng = np.random.default_rng(5)
    one = fleet_plays(rng, [f"h{n}:1" for n in range(8)], 4, 16, 50, wrong="h2:1")
    other = fleet_plays(rng, [f"h{n}:1" for n in range(8)], 4, 16, 50, wrong="h5:1")
    assert {each.worker for each in outliers([*one, *other])} == {"h2", "h5"}


def test_of_two_nobody_can_tell_which() -> None:
    rng = np.random.default_rng(2)
    [found] = outliers(fleet_plays(rng, ["a:1", "b:1"], 1, 10, 50, wrong="b:1"))
    assert found.pair == ("a", "b")
    assert str(found).startswith("a and b differ in results")


def test_without_draws_the_chance_is_that_of_one_degree_of_freedom() -> None:
    spec = MatchSpec("weights:1", "uct:100", 1000, 8, 0, 0, 0, 2000)
    parts = [
        MatchResult(replace(spec, first_game=1000 * part), spec.first, spec.second, wins, 0, 1000 - wins, part, worker=worker)
        for part, (worker, wins) in enumerate([("a:1", 700), ("b:1", 500)])
    ]
    (found,) = outliers(put_together(parts))
    statistic = 100**2 / (1000 * 0.6 * 0.4 * 1000 / 1999)  # of a hypergeometric count: 600 of 1,000 expected, 700 seen
    assert found.chance == pytest.approx(math.erfc(math.sqrt(statistic / 2)), rel=1e-6, abs=0.0)


def test_on_one_machine_its_processes_are_compared() -> None:
    rng = np.random.default_rng(3)
    assert [one.worker for one in outliers(fleet_plays(rng, ["a:1", "a:2", "a:3"], 2, 12, 50, wrong="a:2"))] == ["a:2"]


def test_matches_of_different_strength_are_no_difference_between_workers() -> None:
    rng = np.random.default_rng(4)
    easy = fleet_plays(rng, ["a:1"] * 9 + ["b:1", "c:1"], 3, 10, 100, chances=(0.95, 0.0, 0.05))
    hard = fleet_plays(rng, ["b:1"] * 9 + ["a:1", "c:1"], 3, 10, 100, chances=(0.05, 0.0, 0.95))
    assert outliers([*easy, *hard]) == []


def test_few_games_alarm_nobody_even_where_chi_square_would() -> None:
    spec = MatchSpec("weights:1", "uct:1", 2, 8, 0, 1, 0, 1000)
    result = MatchResult(spec, "weights:1", "uct:1", 1, 1, 0, 1, worker="a:1")
    parts = [
        MatchResult(MatchSpec("weights:1", "uct:1", 2, 8, 0, 1, 2 * n, 1000), "weights:1", "uct:1", 2, 0, 0, 1, worker="b:1")
        for n in range(1, 400)
    ]
    assert outliers(put_together([result, *parts])) == []


def two_machines(first: tuple[int, int, int], second: tuple[int, int, int]) -> list[WholeMatch]:
    spec = MatchSpec("weights:1", "uct:1", sum(first), 8, 0, 1, 0, sum(first) + sum(second))
    rest = replace(spec, first_game=sum(first), games=sum(second))
    parts = [(spec, "a:1", first), (rest, "b:1", second)]
    return put_together([MatchResult(one, one.first, one.second, *counts, 1, worker=worker) for one, worker, counts in parts])


@pytest.mark.parametrize("draws", [0, 1])
def test_with_few_games_the_chance_is_counted_out(draws: int) -> None:
    """By Fisher's exact test where there are no draws: a worker that lost three of three, of 403 games with three losses."""
    (found,) = outliers(two_machines((0, draws, 3), (400, 0, 0)))
    exact = 1 / math.comb(403, 3)
    assert found.chance < ERROR_RATE
    assert found.chance >= exact
    assert (found.score, found.others_score) == (pytest.approx(draws / 2 / (3 + draws)), 1.0)


def test_half_a_point_for_a_draw() -> None:
    (found,) = outliers(two_machines((600, 300, 100), (100, 300, 600)))
    assert {found.score, found.others_score} == {0.75, 0.25}


def test_who_played_alone_is_compared_with_nobody() -> None:
    assert outliers([]) == []
    assert outliers(fleet_plays(np.random.default_rng(6), ["a:1"], 3, 4, 50)) == []
    assert outliers(fleet_plays(np.random.default_rng(6), [""], 3, 4, 50)) == [], "tabs are nobody"
