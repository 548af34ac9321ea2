"""Rules of open games: who holds which after each step, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledger_states import CANCELLED, DONE, LEASED, games, job, lease, run

from azq.errors import LeaseLost, StateConflict
from azq.ledger import rules
from azq.ledger.types import RunState
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, RunRecord, SampleEvent


@pytest.mark.parametrize(
    ("count", "uids", "pool", "opened"),
    [(0, [], (5, 6), 9), (1, [5], (6,), 9), (2, [5, 6], (), 9), (4, [5, 6, 10, 11], (), 11)],
)
def test_adopting_takes_from_the_pool_and_opens_the_rest(count, uids, pool, opened):
    state, records = rules.games.adopt(run(job(1, LEASED, held={7}), open=games((5, 6, 7)), pool=(5, 6), opened=9), lease(), count)
    assert [record.uid for record in records] == uids
    assert (state.pool, state.opened, sorted(state.open)) == (pool, opened, sorted({5, 6, 7, *uids}))
    assert state.jobs[1].held == {7, *uids}


def test_adopted_games_come_with_their_moves():
    moved = GameRecord(5, b"\1\0")
    assert rules.games.adopt(run(job(1, LEASED), open={5: moved}, pool=(5,), opened=5), lease(), 2)[1] == [moved, GameRecord(6)]


def test_a_run_that_rests_gives_no_games_and_opens_none():
    state = run(job(1, LEASED), pool=(5,), open=games((5,)), opened=5, state=RunState.PAUSED)
    assert rules.games.adopt(state, lease(), 3) == (state, [])


def test_in_lockstep_games_are_opened_for_versions_that_are_there():
    state = replace(run(job(1, LEASED)), record=RunRecord("r", b'{"learner": {"lockstep_games": 2}}', {}, "", 1))
    assert rules.games.adopt(state, lease(), 9)[1] == []
    assert [len(rules.games.adopt(state, lease(), 9, versions)[1]) for versions in (0, 1, 3)] == [0, 2, 6]


def test_games_are_adopted_by_name_where_they_lie_in_the_pool():
    moved = GameRecord(5, b"\1\0")
    state = run(job(1, LEASED, held={7}), open={**games((6, 7, 8)), 5: moved}, pool=(8, 6, 5), opened=9)
    after, records = rules.games.adopt_named(state, lease(), [5, 7, 8, 5, 99])
    assert records == [moved, GameRecord(8)]
    assert (after.pool, after.jobs[1].held, after.opened) == ((6,), {5, 7, 8}, 9)
    rests = replace(state, state=RunState.PAUSED)
    assert rules.games.adopt_named(rests, lease(), [5, 8]) == (rests, [])


def test_games_to_finish_are_numbered_once_each():
    events = [SampleEvent(GameRecord(uid), (), "w", 0) for uid in (5, 6)]
    assert rules.games.distinct(events) == [5, 6]
    with pytest.raises(StateConflict, match="twice"):
        rules.games.distinct([*events, events[0]])


SUSPECTED = {"open": games(range(1, 6)), "pool": (1, 2, 3, 4, 5), "opened": 5, "strikes": {1: 1, 3: 2, 4: 2, 5: 2}, "sound": True}


@pytest.mark.parametrize(
    ("count", "held", "uids", "pool"),
    [
        (9, (), [5, 4, 3], (1, 2)),  # suspects by themselves
        (2, (), [5, 4], (1, 2, 3)),
        (3, (8,), [1, 2, 6], (3, 4, 5)),  # nobody else plays with them
        (1, (8,), [1], (2, 3, 4, 5)),
    ],
)
def test_suspects_are_played_by_themselves(count, held, uids, pool):
    state, records = rules.games.adopt(run(job(1, LEASED, held=held), **SUSPECTED), lease(), count)
    assert [record.uid for record in records] == uids
    assert state.pool == pool
    assert state.jobs[1].held == {*held, *uids}


def test_who_holds_a_suspect_gets_no_games_besides():
    state = run(job(1, LEASED, held=(5,)), **{**SUSPECTED, "pool": (1, 2, 3, 4)})
    assert rules.games.adopt(state, lease(), 3) == (state, [])


def test_a_journal_frees_what_moved_of_its_strikes():
    state = run(job(1, LEASED, held=(1, 2)), open=games((1, 2)), strikes={1: 2, 2: 1})
    after = rules.games.journal(state, lease(), [GameRecord(1, b"\1\0")])
    assert after.open == {1: GameRecord(1, b"\1\0"), 2: GameRecord(2)}
    assert (after.strikes, after.sound) == ({2: 1}, True)
    with pytest.raises(LeaseLost, match="w does not hold game 3 in job r:1; nothing was committed"):
        rules.games.journal(state, lease(), [GameRecord(1), GameRecord(3)])


def test_finished_games_are_closed_counted_and_pay_for_the_jobs_failures():
    state = run(job(1, LEASED, held=(1, 2, 3), failures=2), open=games((1, 2, 3, 4)), finished=6, strikes={1: 1, 4: 1})
    after = rules.games.finish_games(state, lease(), [1, 3])
    assert (sorted(after.open), after.finished, after.strikes) == ([2, 4], 8, {4: 1})
    assert (after.jobs[1].held, after.jobs[1].failures) == ({2}, 0)
    assert rules.games.finish_games(state, lease(), []) == state, "which no games do not"


def test_an_abandoned_game_is_closed_once_with_its_reason():
    state = run(job(1, LEASED, held=(1, 2)), open=games((1, 2, 3)), strikes={1: 1, 3: 1}, abandoned={9: "old"})
    after = rules.games.abandon(state, lease(), 1, "why")
    assert (sorted(after.open), after.abandoned, after.strikes) == ([2, 3], {1: "why", 9: "old"}, {3: 1})
    assert after.jobs[1].held == {2}
    assert rules.games.abandon(after, lease(), 1, "another") is after
    for other in (lease(attempt=2), lease(owner="v")):
        with pytest.raises(LeaseLost):
            rules.games.abandon(after, other, 1, "another")


@pytest.mark.parametrize(("cancel", "how"), [(False, DONE), (True, CANCELLED)])
def test_releasing_writes_gives_back_and_ends_once(cancel, how):
    state = run(job(1, LEASED, held=(2, 3), cancel=cancel), open=games((2, 3, 4)), pool=(4,))
    after = rules.games.release(state, 50, lease(), [GameRecord(3, b"\1\0")])
    assert (after.open[3], after.pool) == (GameRecord(3, b"\1\0"), (2, 3, 4))
    row = after.jobs[1]
    assert (row.view.state, row.view.ended_ms, row.view.error, row.released, row.held) == (how, 50, "", True, frozenset())
    assert rules.games.release(after, 60, lease(), []) is after
    with pytest.raises(LeaseLost):
        rules.games.release(after, 60, replace(lease(), owner="v"), [])


def test_completing_ends_an_evaluation_once():
    state = run(job(1, LEASED, Kind.EVAL, held=(2,)), open=games((2,)))
    after, first = rules.games.complete(state, 50, lease())
    assert first is True
    assert (after.jobs[1].view.state, after.jobs[1].view.ended_ms, after.jobs[1].released, after.pool) == (DONE, 50, True, (2,))
    assert rules.games.complete(after, 60, lease()) == (after, False)
