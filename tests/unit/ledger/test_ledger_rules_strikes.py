"""Suspicion step by step: who is struck, suspected, played with whom, set aside, free again."""

from __future__ import annotations

import pytest
from ledger_states import LEASED, games, job, run

from azq.ledger.rules.strikes import REASON, company, is_suspect, moved_on, strike, under_test


def test_two_strikes_make_a_suspect():
    assert [uid for uid in (1, 2, 3, 4) if is_suspect(run(strikes={1: 1, 2: 2, 3: 3}), uid)] == [2, 3]


def test_suspects_play_in_ever_smaller_company():
    assert [company(strikes) for strikes in (2, 3, 4, 5, 6)] == [64, 8, 1, 1, 1]


def test_each_game_of_a_bad_lease_is_struck_and_the_seventh_strike_sets_it_aside():
    state = run(
        job(1, LEASED, held=(1, 2, 3, 4)), open=games(range(1, 6)), strikes={2: 5, 3: 6, 4: 7, 5: 6}, abandoned={9: "old"}, sound=True
    )
    after, tested = strike(state, 1)
    assert tested is True
    assert (after.strikes, after.sound) == ({1: 1, 2: 6, 5: 6}, False)
    assert sorted(after.open) == [1, 2, 5]
    assert after.abandoned == {9: "old", 3: REASON, 4: REASON}
    assert after.jobs[1].held == {1, 2}


@pytest.mark.parametrize(("strikes", "tested"), [({}, False), ({1: 1}, False), ({5: 3}, False), ({1: 2}, True)])
def test_a_lease_tested_suspects_where_it_held_one(strikes, tested):
    assert strike(run(job(1, LEASED, held=(1, 2)), open=games((1, 2, 5)), strikes=strikes), 1)[1] is tested


def test_a_lease_without_games_strikes_nobody():
    state = run(job(1, LEASED), strikes={5: 3}, sound=True)
    assert strike(state, 1) == (state, False)


def test_a_move_takes_a_games_strikes_and_shows_that_the_run_is_sound():
    after = moved_on(run(strikes={1: 1, 2: 4}), [2, 3])
    assert (after.strikes, after.sound) == ({1: 1}, True)


@pytest.mark.parametrize(("strikes", "moved"), [({1: 1}, []), ({}, [1])])
def test_without_a_move_or_strikes_nothing_is_shown(strikes, moved):
    state = run(strikes=strikes)
    assert moved_on(state, moved) is state


@pytest.mark.parametrize(
    ("pool", "strikes", "sound", "count", "uids"),
    [
        ((), {}, True, 5, ()),
        ((1, 2), {}, True, 5, ()),
        ((1, 2), {1: 2, 2: 1}, True, 5, ()),  # the last is none
        ((1, 2, 3), {2: 2, 3: 2}, False, 5, ()),
        ((1, 2, 3), {2: 2, 3: 2}, True, 5, (3, 2)),
        ((1, 2, 3), {2: 2, 3: 2}, True, 1, (3,)),
        ((1, 2, 3), {3: 2}, True, 5, (3,)),
        ((1, 2, 3, 4), {1: 3, 2: 2, 3: 3, 4: 3}, True, 9, (4, 3)),  # as many strikes as the last, without a gap
        ((1, 2, 3), {1: 4, 2: 4, 3: 4}, True, 9, (3,)),  # alone
        (tuple(range(1, 99)), dict.fromkeys(range(1, 99), 2), True, 90, tuple(range(98, 34, -1))),
        (tuple(range(1, 99)), dict.fromkeys(range(1, 99), 3), True, 90, tuple(range(98, 90, -1))),
    ],
)
def test_whom_the_next_lease_tests(pool, strikes, sound, count, uids):
    assert under_test(run(pool=pool, open=games(pool), strikes=strikes, sound=sound), count, openable=1) == uids


@pytest.mark.parametrize(
    ("pool", "held", "strikes", "openable", "uids"),
    [
        ((1, 2), (), {1: 2, 2: 2}, 0, (2, 1)),
        ((1, 2), (), {1: 2, 2: 2}, 1, ()),  # a new game may show that the run is sound
        ((1, 2), (3,), {1: 2, 2: 2}, 0, ()),  # and so may one that is played
        ((1, 2), (), {2: 2}, 0, ()),  # or one in the pool
        ((), (), {}, 0, ()),
    ],
)
def test_where_nothing_else_could_ever_move_suspects_are_played_unsound_as_the_run_is(pool, held, strikes, openable, uids):
    assert under_test(run(pool=pool, open=games((*pool, *held)), strikes=strikes, sound=False), 9, openable) == uids
