"""What the ledger promises of leases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ledger_worlds import event, record

from azq.errors import LeaseLost, NotFound, StateConflict
from azq.ledger.types import Directive, JobState, RunState
from azq.wire import keys
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunRecord


def test_renewing_keeps_a_lease(world):
    lease = world.lease()
    for _ in range(3):
        world.pass_s(8)
        assert world.ledger.renew(lease) is Directive.GO_ON
        assert world.ledger.expire("r", 3) == []


def test_an_expired_lease_is_fenced_off_and_its_games_come_first(world):
    one, two = world.lease(owner="w1"), world.lease(owner="w2")
    assert [game.uid for game in world.ledger.adopt(one, 2)] == [1, 2]
    assert [game.uid for game in world.ledger.adopt(two, 2)] == [3, 4]
    world.ledger.release(two, [])
    world.ledger.journal(one, [GameRecord(1, b"\5\0")])
    world.pass_s(11)
    [view] = world.ledger.expire("r", 3)
    assert (view.state, view.attempt, view.published_ms, view.error) == (JobState.QUEUED, 2, 0, "the lease of w1 ran out")
    assert world.ledger.expire("r", 3) == []
    for commit in (
        lambda: world.ledger.renew(one),
        lambda: world.ledger.adopt(one, 1),
        lambda: world.ledger.journal(one, [GameRecord(1, b"\6\0")]),
        lambda: world.ledger.replace_games(one, [event(1)], 0),
        lambda: world.ledger.abandon(one, 1, "why"),
        lambda: world.ledger.release(one, [GameRecord(1, b"\6\0")]),
        lambda: world.ledger.complete(one, b"x"),
        lambda: world.ledger.fail(one, "why"),
    ):
        with pytest.raises(LeaseLost, match="w1 lost job r:1, attempt 1"):
            commit()
    third = world.ledger.claim("r:1", 2, "w3", 10)
    assert world.ledger.adopt(third, 5) == [GameRecord(1, b"\5\0"), GameRecord(2), GameRecord(3), GameRecord(4), GameRecord(5)]
    assert world.samples() == []


def test_a_lease_is_its_owners_alone(world):
    lease = world.lease(owner="w1")
    world.ledger.adopt(lease, 1)
    with pytest.raises(LeaseLost):
        world.ledger.replace_games(replace(lease, owner="w2"), [event(1)], 0)
    with pytest.raises(LeaseLost):
        world.ledger.release(replace(lease, owner="w2"), [])
    assert world.ledger.replace_games(lease, [event(1)], 0)[0] is Directive.GO_ON


def test_a_job_fails_after_so_many_bad_leases(world):
    world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    for attempt in (1, 2, 3):
        lease = world.ledger.claim("r:1", attempt, "w", 5)
        world.ledger.adopt(lease, 1)
        if attempt == 2:
            world.ledger.fail(lease, "it broke", max_attempts=3)
        else:
            world.pass_s(5)
            world.ledger.expire("r", 3)
    view = world.ledger.job("r:1")
    assert (view.state, view.attempt, view.error) == (JobState.FAILED, 3, "the lease of w ran out")
    assert world.ledger.jobs("r") == []
    with pytest.raises(StateConflict, match="failed"):
        world.ledger.cancel("r:1")
    another = world.lease()
    assert [game.uid for game in world.ledger.adopt(another, 1)] == [2], (
        "three leases died of game 1: first another shows that the run is sound"
    )
    world.ledger.journal(another, [GameRecord(2, b"\5\0")])
    assert [game.uid for game in world.ledger.adopt(world.lease(), 9)] == [1], "a suspect is played by itself"


def test_a_job_that_makes_games_outlives_any_number_of_dead_holders(world):
    world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    for attempt in range(1, 6):
        lease = world.ledger.claim("r:1", attempt, "w", 5)
        (game,) = world.ledger.adopt(lease, 1)
        world.ledger.replace_games(lease, [event(game.uid)], 0)
        world.ledger.fail(lease, "process 7, which held it, died", max_attempts=2)
    assert world.ledger.job("r:1").state is JobState.QUEUED
    lease = world.ledger.claim("r:1", 6, "w", 5)
    world.ledger.replace_games(lease, [], 0)
    world.ledger.fail(lease, "it broke", max_attempts=2)
    assert world.ledger.job("r:1").state is JobState.FAILED


def test_a_cancelled_lease_is_told_and_ends_cancelled(world):
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    assert world.ledger.cancel("r:1").state is JobState.LEASED
    assert world.ledger.journal(lease, []) is Directive.RELEASE
    world.ledger.release(lease, [])
    assert world.ledger.job("r:1").state is JobState.CANCELLED
    queued = world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id
    assert world.ledger.cancel(queued).state is JobState.CANCELLED
    assert world.ledger.claim(queued, 1, "w", 10) is None


def test_a_cancelled_job_whose_worker_died_is_over(world):
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    world.ledger.cancel("r:1")
    world.pass_s(11)
    assert [view.state for view in world.ledger.expire("r", 9)] == [JobState.CANCELLED]
    with pytest.raises(LeaseLost):
        world.ledger.release(lease, [])


def test_directives(world):
    selfplay, evaluation = world.lease(Kind.SELFPLAY), world.lease(Kind.EVAL)
    world.bus.put(keys.stall("r"), b"1")
    assert world.ledger.renew(selfplay) is Directive.STALL
    assert world.ledger.renew(evaluation) is Directive.GO_ON
    world.ledger.set_run_state("r", RunState.PAUSED)
    assert world.ledger.renew(selfplay) is Directive.RELEASE
    assert world.ledger.renew(evaluation) is Directive.RELEASE
    assert world.ledger.adopt(selfplay, 3) == []
    assert world.ledger.counts("r").opened == 0


def test_self_play_stalls_while_too_many_games_wait_for_the_learner(world):
    world.ledger.update_run(RunRecord("r", b'{"selfplay": {"max_waiting_games": 2}}', {}, "folder", 1))
    selfplay, evaluation = world.lease(Kind.SELFPLAY), world.lease(Kind.EVAL)
    uids = [game.uid for game in world.ledger.adopt(selfplay, 3)]
    assert world.ledger.replace_games(selfplay, [event(uids[0])], 0)[0] is Directive.GO_ON
    assert world.ledger.replace_games(selfplay, [event(uids[1])], 0)[0] is Directive.STALL
    assert world.ledger.renew(evaluation) is Directive.GO_ON
    (entry, *_) = world.bus.read([keys.samples("r")], keys.LEARNER_GROUP, "l", count=1, block_ms=0)
    world.ledger.record_inserted("r", 1, 0, ack=[entry.id])
    assert world.ledger.renew(selfplay) is Directive.GO_ON


def test_a_look_says_what_single_questions_say(world):
    lease = world.lease()
    uids = [game.uid for game in world.ledger.adopt(lease, 3)]
    world.ledger.replace_games(lease, [event(uids[0])], 0)
    for outcome in ("release", "fail", "fail"):
        other = world.lease(owner="w2")
        if outcome == "release":
            world.ledger.release(other, [])
        else:
            world.ledger.fail(other, "broken", max_attempts=1)
    world.ledger.create_run(record("another"))
    snapshots = {snapshot.view.record.run: snapshot for snapshot in world.ledger.snapshots()}
    assert sorted(snapshots) == ["another", "r"]
    snapshot, ledger = snapshots["r"], world.ledger
    assert snapshot == ledger.snapshot("r")
    assert (snapshot.view, snapshot.counts, list(snapshot.jobs)) == (ledger.run("r"), ledger.counts("r"), ledger.jobs("r"))
    assert [view.state for view in snapshot.ended] == [JobState.FAILED, JobState.FAILED, JobState.DONE]
    with pytest.raises(NotFound, match="another, r"):
        world.ledger.snapshot("nobody")
