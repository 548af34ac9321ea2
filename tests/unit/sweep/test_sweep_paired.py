"""The sign test over positions: exact, one-sided, blind to what both lose, and rarely wrong where there is nothing to tell."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.sweep.paired import chance_of, surely_worse

marks = st.text("012", min_size=60, max_size=60)
certainties = st.floats(0.501, 0.999)


def at(ours: str, best: str, certainty: float) -> bool:
    return surely_worse({"500": ours}, {"400": best}, certainty)


@given(st.integers(1, 60), st.integers(0, 20))  # with more the sums round to 1
def test_chances_are_those_of_a_fair_coin(more: int, less: int) -> None:
    assert 0.0 < chance_of(more + 1, less) < chance_of(more, less) < chance_of(more, less + 1) <= 1.0
    assert chance_of(more, less) + chance_of(less + 1, more - 1) == pytest.approx(1.0)
    assert chance_of(0, less) == 1.0


@given(marks, marks, marks, certainties)
def test_what_both_lose_or_keep_or_one_was_not_asked_changes_nothing(ours: str, best: str, common: str, certainty: float) -> None:
    before = at(ours, best, certainty)
    assert at(ours + common, best + common, certainty) == before
    assert at(ours + common, best + "0" * 60, certainty) == before


@given(marks, marks, certainties)
def test_at_most_one_of_two_is_surely_worse_and_nobody_than_himself(ours: str, best: str, certainty: float) -> None:
    assert not at(ours, ours, certainty)
    assert not (at(ours, best, certainty) and at(best, ours, certainty))


@given(marks, marks, st.integers(0, 59), certainties)
def test_one_more_loss_never_makes_it_better(ours: str, best: str, place: int, certainty: float) -> None:
    kept, lost = (ours[:place] + mark + ours[place + 1 :] for mark in "12")
    assert at(lost, best, certainty) >= at(kept, best, certainty)


def test_equals_are_rarely_told_apart_and_twice_the_errors_mostly_are() -> None:
    luck = random.Random(1)

    def played(share: float) -> str:
        return "".join("2" if luck.random() < share else "1" for _ in range(600))

    assert sum(at(played(0.1), played(0.1), 0.99) for _ in range(300)) <= 9
    assert sum(at(played(0.2), played(0.1), 0.99) for _ in range(300)) >= 290


def test_only_the_same_point_is_compared() -> None:
    bad, good = "2" * 30, "1" * 30
    assert surely_worse({"100": good, "500": bad}, {"450": good, "900": bad}, 0.99)
    assert not surely_worse({"500": bad}, {"600": good}, 0.99)
    assert not surely_worse({}, {"400": good}, 0.99)
