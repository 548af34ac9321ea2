"""The comparison of ledger and disk: whatever is taken from the disk or put there is found, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.drill.proof import Books, Discrepancy, Disk, compare

NUMBERS = st.integers(1, 40)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Books, frozenset[int]]:
    """A ledger, and the games that it closed."""
    opened = draw(st.integers(0, 40))
    fates = draw(st.lists(st.sampled_from(["closed", "open", "abandoned"]), min_size=opened, max_size=opened))
    of = {fate: {uid for uid, found in enumerate(fates, 1) if found == fate} for fate in ("closed", "open", "abandoned")}
    return Books(opened, frozenset(of["open"]), dict.fromkeys(of["abandoned"], "no rules")), frozenset(of["closed"])


@given(histories())
def test_a_log_that_holds_what_was_closed_agrees(history: tuple[Books, frozenset[int]]) -> None:
    books, closed = history
    found = compare(books, Disk(closed))
    assert (found.lost, found.doubled, found.unexpected) == (frozenset(),) * 3
    assert {uid for uid, _ in found.abandoned} == books.abandoned.keys()


@given(histories(), st.sets(NUMBERS), st.sets(NUMBERS), st.dictionaries(NUMBERS, st.integers(1, 3)))
def test_what_is_missing_added_or_copied_is_found_by_number(
    history: tuple[Books, frozenset[int]], taken: set[int], added: set[int], copied: dict[int, int]
) -> None:
    books, closed = history
    games = (closed - taken) | added
    found = compare(books, Disk(games, copied))
    assert found.lost == (closed & taken) - added
    assert found.unexpected == added - closed
    assert Counter(uid for uid, _ in found.doubled) == Counter(copied)


@given(histories(), st.sets(NUMBERS), st.sets(NUMBERS))
def test_what_was_found_before_is_not_found_again(history: tuple[Books, frozenset[int]], first: set[int], second: set[int]) -> None:
    books, closed = history
    before, after = compare(books, Disk(closed - first)), compare(books, Disk(closed - first - second))
    assert after.since(before).lost == (closed & second) - first
    assert after.since(after) == Discrepancy()
    assert after.since(Discrepancy()) == after


def test_a_balanced_ledger_whose_log_lacks_a_game_and_holds_another_twice_is_found_out() -> None:
    """By its own sums this ledger balances: three opened, finished and inserted."""
    found = compare(Books(3), Disk({1, 2}, {2: 1}))
    assert (found.lost, found.doubled) == ({3}, {(2, 1)})


@pytest.mark.parametrize(("allowed", "given_up"), [("", 2), ("killed its worker", 1), ("killed", 1), ("no rules", 1), ("r", 0), ("x", 2)])
def test_a_game_is_given_up_unless_its_reason_is_allowed(allowed: str, given_up: int) -> None:
    found = compare(Books(2, abandoned={1: "killed its worker 3 times", 2: "no rules"}), Disk())
    assert found.given_up(allowed) == given_up
