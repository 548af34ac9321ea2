"""What drills show: where ledger and disk disagree, found by number and nothing else; when a drill has passed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.parts.lab.drill.outcome import Discrepancy, Disk, LedgerAccount, Outcome, as_table, compare
from azq.parts.lab.drill.scenarios import Scenario

NUMBERS = st.integers(1, 40)


@st.composite
def histories(draw: st.DrawFn) -> tuple[LedgerAccount, frozenset[int]]:
    """A ledger, and the games that it closed."""
    opened = draw(st.integers(0, 40))
    fates = draw(st.lists(st.sampled_from(["closed", "open", "abandoned"]), min_size=opened, max_size=opened))
    of = {fate: {uid for uid, found in enumerate(fates, 1) if found == fate} for fate in ("closed", "open", "abandoned")}
    return LedgerAccount(opened, frozenset(of["open"]), dict.fromkeys(of["abandoned"], "no rules")), frozenset(of["closed"])


@given(histories())
def test_a_log_that_holds_what_was_closed_agrees(history: tuple[LedgerAccount, frozenset[int]]) -> None:
    account, closed = history
    found = compare(account, Disk(closed))
    assert (found.lost, found.doubled, found.unexpected) == (frozenset(),) * 3
    assert {uid for uid, _ in found.abandoned} == account.abandoned.keys()


@given(histories(), st.sets(NUMBERS), st.sets(NUMBERS), st.dictionaries(NUMBERS, st.integers(1, 3)))
def test_what_is_missing_added_or_copied_is_found_by_number(
    history: tuple[LedgerAccount, frozenset[int]], taken: set[int], added: set[int], copied: dict[int, int]
) -> None:
    account, closed = history
    games = (closed - taken) | added
    found = compare(account, Disk(games, copied))
    assert found.lost == (closed & taken) - added
    assert found.unexpected == added - closed
    assert Counter(uid for uid, _ in found.doubled) == Counter(copied)


@given(histories(), st.sets(NUMBERS), st.sets(NUMBERS))
def test_what_was_found_before_is_not_found_again(history: tuple[LedgerAccount, frozenset[int]], first: set[int], second: set[int]) -> None:
    account, closed = history
    before, after = compare(account, Disk(closed - first)), compare(account, Disk(closed - first - second))
    assert after.since(before).lost == (closed & second) - first
    assert after.since(after) == Discrepancy()
    assert after.since(Discrepancy()) == after


@pytest.mark.parametrize(("allowed", "given_up"), [("", 2), ("killed its worker", 1), ("killed", 1), ("no rules", 1), ("r", 0), ("x", 2)])
def test_a_game_is_given_up_unless_its_reason_is_allowed(allowed: str, given_up: int) -> None:
    found = compare(LedgerAccount(2, abandoned={1: "killed its worker 3 times", 2: "no rules"}), Disk())
    assert found.given_up(allowed) == given_up


PLAYER = Scenario("selfplay-kill", "kill -9 of a worker", "selfplay", "kill", 10.0, pause_within_s=40.0, abandoned="killed")
LEARNER = Scenario("learner-kill", "kill -9 of the learner", "learner", "kill", 0.5, pause_within_s=0.5)


def outcome(**changed: Any) -> Outcome:
    """Three rounds that went well, but for what is changed."""
    well = {"journal_s": 1.0, "compared": 1, "recovery_s": [9.0, 12.0, 3.0], "search_lost_s": [0.25, 0.5, 1.0], "pause_s": [3.0]}
    return Outcome(PLAYER, **{**well, **changed})


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, ""),
        ({"recovery_s": [3.0, 10.0, 99.0]}, ""),
        ({"recovery_s": [3.0, 10.5, 99.0]}, "back later than 10 s"),
        ({"recovery_s": [20.0] * 3, "patience": 2.0}, ""),
        ({"recovery_s": [20.5] * 3, "patience": 2.0}, "back later than 10 s"),
        ({"search_lost_s": [0.1, 1.25, 0.1]}, ""),
        ({"search_lost_s": [0.1, 1.26, 0.1]}, "1.26 s of search lost, journaled every 1 s"),
        ({"search_lost_s": [2.5] * 3, "patience": 2.0}, ""),
        ({"search_lost_s": [2.51] * 3, "patience": 2.0}, "2.51 s of search lost, journaled every 1 s"),
        ({"search_lost_s": [0.1, 0.1]}, "search lost was not measured"),
        ({"pause_s": [3.0, 40.0]}, ""),
        ({"pause_s": [40.5, 3.0]}, "no game learned from for 40.5 s"),
        ({"pause_s": [80.0], "patience": 2.0}, ""),
        ({"recovery_s": []}, "no round was made"),
        ({"compared": 0}, "ledger and disk were never compared"),
        ({"balanced": False}, "the ledger does not balance"),
        ({"games_lost": 1}, "1 games lost"),
        ({"duplicates_inserted": 1}, "1 games stored twice"),
        ({"games_unexpected": 1}, "1 games on disk that the ledger has not closed"),
        ({"games_abandoned": 1}, "1 games abandoned"),
        ({"failed": "the learner stayed away", "recovery_s": [], "compared": 0}, "the learner stayed away"),
        ({"failed": "the learner stayed away", "games_lost": 2}, "the learner stayed away; 2 games lost"),
    ],
    ids=str,
)
def test_a_drill_has_passed_up_to_each_bound_and_not_beyond(changed: dict[str, Any], problem: str) -> None:
    assert outcome(**changed).problem() == problem
    assert outcome(**changed).passed() is (problem == "")


def test_nothing_measured_is_no_time_lost() -> None:
    assert Outcome(LEARNER, compared=1).problem() == "no round was made"
    assert Outcome(LEARNER, compared=1, recovery_s=[0.5]).problem() == ""
    assert Outcome(LEARNER, compared=1, recovery_s=[0.5], search_lost_s=[0.25]).problem() == ""
    assert "0.26 s of search lost" in Outcome(LEARNER, compared=1, recovery_s=[0.5], search_lost_s=[0.26]).problem()


def test_what_comparisons_show_adds_up() -> None:
    noted = outcome(compared=0)
    noted.add(Discrepancy(frozenset({1, 2}), frozenset({(3, 1)}), frozenset({4, 5, 6}), frozenset({(7, "killed twice"), (8, "no rules")})))
    noted.add(Discrepancy(lost=frozenset({9})))
    assert (noted.compared, noted.games_lost, noted.duplicates_inserted, noted.games_unexpected, noted.games_abandoned) == (2, 3, 1, 3, 1)


def test_the_figures_of_a_drill() -> None:
    values = outcome(
        recovery_s=[2.34567, 9.87654, 1.23456], pause_s=[0.12345, 3.45678], serving_s={"selfplay": [5.0, 1.23456]}, evaluations_resent=7
    ).values()
    assert values == {
        "name": "selfplay-kill",
        "role": "selfplay",
        "fault": "kill",
        "rounds": 3,
        "recovery_s": 2.346,
        "recovery_max_s": 9.877,
        "within_s": 10.0,
        "serving_s": {"selfplay": 3.117},
        "pause_s": 3.457,
        "search_lost_s": 1.0,
        "pause_within_s": 40.0,
        "compared": 1,
        "games_lost": 0,
        "games_unexpected": 0,
        "games_abandoned": 0,
        "duplicates_inserted": 0,
        "evaluations_resent": 7,
        "balanced": True,
        "passed": True,
        "problem": "",
        "failed": "",
    }
    assert outcome(search_lost_s=[0.12345]).values()["search_lost_s"] == 0.123
    fresh = Outcome(LEARNER).values()
    assert [fresh[figure] for figure in ("rounds", "recovery_s", "recovery_max_s", "pause_s", "search_lost_s")] == [
        0,
        None,
        None,
        None,
        None,
    ]
    assert (fresh["evaluations_resent"], fresh["compared"], fresh["passed"]) == (0, 0, False)


def test_a_table_has_a_line_for_each_drill() -> None:
    well = outcome(serving_s={"selfplay": [1.25, 1.0, 2.0]})
    broken = Outcome(LEARNER, balanced=False, failed="the learner stayed away")
    _, first, second = as_table([well, broken]).splitlines()
    assert first.split() == ["selfplay-kill", "selfplay", "3", "9", "12", "10", "0", "0", "0", "1", "balanced", "selfplay", "1.2"]
    assert second.split()[:11] == ["learner-kill", "learner", "0", "-", "-", "0.5", "0", "0", "0", "-", "UNBALANCED"]
    assert second.endswith("none was away  NOT PASSED: the learner stayed away; the ledger does not balance")
