"""The pure decisions of a slice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq import games
from azq.actor.slice import (
    PATIENCE_S,
    Moment,
    Slice,
    SliceLimits,
    Stop,
    group_sizes,
    groups_that_fit,
    journal_interval_s,
    next_group,
    why_stop,
)
from azq.config import LearnerConfig, RunSections, SearchConfig, SelfPlayConfig
from azq.errors import ConfigError
from azq.ledger.types import Directive, Lease
from azq.wire.kinds import Kind
from azq.wire.messages import Job

LIMITS = SliceLimits(slice_s=60.0, patience_s=30.0, journal_s=5.0)
CALM = Moment(now_s=10.0, started_s=0.0, evaluated_s=9.0, stopping=False, directive=Directive.GO_ON, open_games=8)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({"stopping": True}, Stop.ASKED),
        ({"directive": Directive.RELEASE}, Stop.RELEASED),
        ({"directive": Directive.STALL}, Stop.STALLED),
        ({"open_games": 0}, Stop.NO_GAMES),
        ({"now_s": 60.0, "evaluated_s": 59.0}, Stop.SLICE_OVER),
        ({"now_s": 59.9, "evaluated_s": 59.0}, None),
        ({"now_s": 1059.0, "started_s": 1000.0, "evaluated_s": 1058.0}, None),  # a slice has its own beginning
        ({"now_s": 39.1}, Stop.STARVED),
        ({"now_s": 39.0}, None),
        ({"stopping": True, "directive": Directive.RELEASE, "open_games": 0, "now_s": 99.0}, Stop.ASKED),
        ({"directive": Directive.STALL, "now_s": 99.0}, Stop.STALLED),
        ({"directive": Directive.STALL, "stall_s": 2.0, "stalled_s": 1.9}, None),
        ({"directive": Directive.STALL, "stall_s": 2.0, "stalled_s": 2.0}, Stop.STALLED),
        ({"directive": Directive.STALL, "stall_s": 2.0, "now_s": 60.0, "evaluated_s": 59.0}, Stop.SLICE_OVER),
        ({"directive": Directive.RELEASE, "stall_s": 2.0}, Stop.RELEASED),
        ({"stall_s": 2.0, "stalled_s": 9.0}, None),  # it waited, and plays
    ],
)
def test_why_a_slice_stops(change: dict[str, object], expected: Stop | None) -> None:
    limits = replace(LIMITS, stall_s=change.pop("stall_s", 0.0))  # type: ignore[arg-type]
    assert why_stop(replace(CALM, **change), limits) is expected  # type: ignore[arg-type]


def test_in_lockstep_a_slice_waits_for_games() -> None:
    assert why_stop(replace(CALM, open_games=0), replace(LIMITS, waits=True)) is None


def slice_of(job: Job, lease_s: float, lockstep_games: int = 0) -> Slice:
    sections = RunSections(
        selfplay=SelfPlayConfig(games_in_flight=32, slice_s=60.0, journal_s=20.0),
        learner=LearnerConfig(lockstep_games=lockstep_games, lr_drops=()),
        search=SearchConfig(reuse_subtree=False),
    )
    return Slice(Lease(job, 1, "w", lease_s), sections, games.load("tic_tac_toe"))


def test_a_job_says_how_much_is_played_and_how_long_and_else_the_run_does() -> None:
    plain = slice_of(Job("r:1", "r", Kind.SELFPLAY, "cpu"), 30.0)
    assert (plain.games, plain.limits) == (32, SliceLimits(60.0, PATIENCE_S, 10.0))
    told = slice_of(Job("r:1", "r", Kind.SELFPLAY, "cpu", games=5, slice_s=7.0), 90.0, lockstep_games=8)
    assert (told.games, told.limits) == (5, SliceLimits(7.0, PATIENCE_S, 20.0, waits=True))


@given(st.integers(1, 5000), st.integers(1, 16))
def test_groups_share_the_games_out(games: int, groups: int) -> None:
    sizes = group_sizes(games, groups)
    assert sum(sizes) == games
    assert len(sizes) == min(games, groups)
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@given(st.integers(1, 5000), st.integers(1, 16), st.integers(1, 8), st.integers(8, 5000))
def test_groups_are_as_many_as_asked_for_or_as_fit(games: int, groups: int, leaves_per_step: int, most: int) -> None:
    found = groups_that_fit(games, groups, leaves_per_step, most)
    assert found >= groups
    assert max(group_sizes(games, found)) * leaves_per_step <= most
    assert found == groups or max(group_sizes(games, found - 1)) * leaves_per_step > most


def test_a_game_whose_leaves_fit_no_message_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"leaves_per_step = 9 leaves of one game do not fit a message, 8 do; lower search\.leaves_per_step"
    ):
        groups_that_fit(6, 2, 9, 8)


@pytest.mark.parametrize(("games", "groups"), [(0, 2), (4, 0)])
def test_no_games_or_no_groups_make_none(games: int, groups: int) -> None:
    with pytest.raises(ValueError, match=f"{games} games in {groups} groups"):
        group_sizes(games, groups)


@given(st.integers(1, 9), st.integers(0, 40))
def test_every_group_has_its_turn_once_a_round(groups: int, start: int) -> None:
    turn, seen = start % groups, []
    for _ in range(groups):
        seen.append(turn)
        turn = next_group(turn, groups)
    assert sorted(seen) == list(range(groups))


@given(st.floats(0.01, 100), st.floats(0.1, 100))
def test_a_lease_is_renewed_at_least_three_times_in_its_life(journal_s: float, lease_s: float) -> None:
    assert 0 < journal_interval_s(journal_s, lease_s) <= min(journal_s, lease_s / 3)


def test_a_journal_is_as_rare_as_configured_where_the_lease_is_long_enough() -> None:
    assert journal_interval_s(5.0, 60.0) == 5.0
    assert journal_interval_s(5.0, 12.0) == 4.0
