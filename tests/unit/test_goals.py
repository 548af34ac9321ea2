"""Where a run ends, and how far it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.errors import ConfigError
from azq.goals import Done, Goals


@pytest.mark.parametrize(
    ("text", "goals"), [(None, {}), ("minutes=5", {"minutes": 5.0}), ("games=10,steps=3", {"games": 10.0, "steps": 3.0})]
)
def test_goals_are_read(text: str | None, goals: dict[str, float]) -> None:
    assert Goals.parse(text) == Goals(goals)


@pytest.mark.parametrize("text", ["minutes", "hours=1", "minutes=0", "games=-1", "steps=x"])
def test_goals_that_make_no_sense_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="--until"):
        Goals.parse(text)


def test_a_goal_is_reached_when_it_is_met() -> None:
    goals = Goals({"minutes": 2.0, "games": 10.0, "moves": 1.0})
    assert goals.reached(Done(1.9, 9, 10**6)) == ""
    assert Done.of(120_000, 9, 0) == Done(2.0, 9, 0)
    assert goals.reached(Done.of(120_000, 9, 0)) == "minutes=2 reached"
    assert goals.reached(Done(2.0, 10, 0)) == "minutes=2 reached, games=10 reached"


def test_goals_are_counted_from_where_a_run_stands() -> None:
    assert Goals({"minutes": 2.0, "steps": 10.0}).later(Done(1.5, 7, 30)) == {"minutes": 3.5, "steps": 40.0}


def test_progress_is_that_of_the_nearest_end() -> None:
    assert Goals({}).progress(Done(10.0, 10, 10)) == 0.0
    assert Goals({"minutes": 20.0}).progress(Done(5.0, 10**6, 10**6)) == 0.25
    assert Goals({"minutes": 20.0, "steps": 100.0}).progress(Done(5.0, 0, 80)) == 0.8
    assert Goals({"games": 10.0}).progress(Done(0.0, 50, 0)) == 1.0
    assert Goals({"games": 0.5}).progress(Done(0.0, 0, 9)) == 0.0
    assert Goals({"games": 1.0}).progress(Done(0.0, 1, 9)) == 1.0
    assert Goals({"steps": 0.0, "moves": 3.0}).progress(Done(1.0, 1, 1)) == 0.0  # no end, and one that nobody knows


@given(st.dictionaries(st.sampled_from(["minutes", "games", "steps"]), st.floats(1e-3, 1e9)), st.floats(0, 1e9), st.integers(0, 10**9))
def test_progress_is_a_share(until: dict[str, float], minutes: float, count: int) -> None:
    goals, done = Goals(until), Done(minutes, count, count)
    assert 0.0 <= goals.progress(done) <= 1.0
    assert bool(goals.reached(done)) == (goals.progress(done) == 1.0)


@pytest.mark.parametrize(
    ("until", "per_s", "end"),
    [
        ({}, {"games": 1.0}, ("", None)),
        ({"minutes": 3.0}, {}, ("minutes=3", 60.0)),
        ({"minutes": 3.0, "games": 60.0}, {"games": 2.0}, ("games=60", 25.0)),
        ({"games": 60.0, "steps": 5.0}, {"games": 0.0}, ("", None)),  # neither comes nearer
        ({"steps": 5.0}, {"steps": 1.0}, ("steps=5", 0.0)),  # behind it
    ],
)
def test_the_first_end_is_told_with_its_distance(until: dict[str, float], per_s: dict[str, float], end: tuple[str, float | None]) -> None:
    assert Goals(until).first_end(Done(2.0, 10, 8), per_s) == end
