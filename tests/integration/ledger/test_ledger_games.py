"""What the ledger promises of games."""

from __future__ import annotations

import msgspec
import pytest
from ledger_worlds import event, record

from azq.errors import LeaseLost, StateConflict, WireError
from azq.ledger import Ledger
from azq.ledger.types import Directive, Effort, JobState, LedgerCounts, RunState
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunRecord


def test_games_that_ended_are_replaced_in_the_same_step(world):
    lease = world.lease()
    world.ledger.adopt(lease, 4)
    world.ledger.release(lease, [])
    lease = world.lease()
    assert [game.uid for game in world.ledger.adopt(lease, 2)] == [1, 2]
    with pytest.raises(LeaseLost):
        world.ledger.replace_games(lease, [event(1), event(99)], 1)
    with pytest.raises(StateConflict, match="twice"):
        world.ledger.replace_games(lease, [event(1), event(1)], 1)
    directive, games = world.ledger.replace_games(lease, [event(1)], 3)
    assert directive is Directive.GO_ON
    assert [game.uid for game in games] == [3, 4, 5], "the pool's first, then a new one"
    assert world.samples() == [1]
    with pytest.raises(LeaseLost):
        world.ledger.replace_games(lease, [event(1)], 2)
    assert world.ledger.counts("r") == LedgerCounts(5, 1, 4, 0, 0, 1, 0), "a refused call adopts nothing"
    world.ledger.set_run_state("r", RunState.PAUSED)
    assert world.ledger.replace_games(lease, [event(2)], 2) == (Directive.RELEASE, []), "a paused run ends games and starts none"


def test_journaling_is_all_or_nothing_and_renews(world):
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    with pytest.raises(LeaseLost):
        world.ledger.journal(lease, [GameRecord(1, b"\1\0"), GameRecord(99)])
    world.pass_s(9)
    assert world.ledger.journal(lease, []) is Directive.GO_ON
    world.pass_s(9)
    assert world.ledger.expire("r", 3) == []
    world.ledger.release(lease, [GameRecord(2, b"\2\0")])
    assert world.ledger.adopt(world.lease(), 2) == [GameRecord(1), GameRecord(2, b"\2\0")]


def test_work_is_counted_once_however_often_it_is_told(world):
    def counted() -> Effort:
        counts = world.ledger.counts("r")
        return Effort(counts.simulations, counts.evaluations, counts.requests)

    first, second = world.lease(), world.lease(owner="w2")
    for told in (Effort(10, 5, 1), Effort(10, 5, 1), Effort(30, 5, 2), Effort(20, 4, 1)):
        world.ledger.count_work(first, told)
    assert counted() == Effort(30, 5, 2)
    world.ledger.count_work(second, Effort(5, 5, 5))
    assert counted() == Effort(35, 10, 7)
    world.ledger.fail(first, "gone")
    with pytest.raises(LeaseLost):
        world.ledger.count_work(first, Effort(99, 99, 99))
    again = world.ledger.claim("r:1", 2, "w1", 10.0)
    world.ledger.count_work(again, Effort(1, 1, 1))  # another attempt begins at nothing
    assert counted() == Effort(36, 11, 8)


def test_an_abandoned_game_stays_abandoned(world):
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    assert world.ledger.abandon_reason("r") == ""
    world.ledger.abandon(lease, 1, "does not replay")
    assert world.ledger.abandon_reason("r") == "does not replay"
    world.ledger.abandon(lease, 1, "does not replay")
    assert world.ledger.counts("r") == LedgerCounts(2, 0, 1, 1, 0, 0, 0)
    with pytest.raises(LeaseLost):
        world.ledger.abandon(lease, 99, "not mine")
    world.ledger.release(lease, [])
    assert [game.uid for game in world.ledger.adopt(world.lease(), 2)] == [2, 3]


def test_an_evaluation_is_completed_once(world):
    lease = world.lease(Kind.EVAL)
    world.ledger.complete(lease, b"result")
    world.ledger.complete(lease, b"result")
    assert [entry.frame for entry in world.bus.after(keys.results("r"), "0")] == [b"result"]
    assert world.ledger.job("r:1").state is JobState.DONE


def test_an_evaluation_that_says_what_the_problem_was_has_failed_for_good(world):
    lease = world.lease(Kind.EVAL)
    for _ in range(2):
        world.ledger.complete(lease, b"result", "no such engine")
    assert [entry.frame for entry in world.bus.after(keys.results("r"), "0")] == [b"result"]
    ended = world.ledger.job("r:1")
    assert (ended.state, ended.attempt, ended.error) == (JobState.FAILED, 1, "no such engine")


def test_counts_balance_when_the_learner_acknowledges_with_its_count(world):
    lease = world.lease()
    world.ledger.adopt(lease, 3)
    world.ledger.replace_games(lease, [event(1), event(2)], 0)
    entries = world.bus.read([keys.samples("r")], keys.LEARNER_GROUP, "c", count=9, block_ms=0)
    assert world.ledger.counts("r").balanced
    world.ledger.record_inserted("r", 1, 0, ack=[entries[0].id])
    assert world.ledger.counts("r") == LedgerCounts(3, 2, 1, 0, 1, 1, 0)
    for _ in range(2):  # absolute numbers: safe to repeat
        world.ledger.record_inserted("r", 2, 4, ack=[entry.id for entry in entries])
        assert world.ledger.counts("r") == LedgerCounts(3, 2, 1, 0, 2, 0, 4)
    assert world.ledger.counts("r").balanced
    assert world.bus.claim(keys.samples("r"), keys.LEARNER_GROUP, "d", min_idle_ms=0, count=9) == []


def test_finished_games_that_break_the_rules_are_abandoned_and_forged_ones_change_nothing(world):
    lease = world.lease()
    world.ledger.adopt(lease, 3)
    world.ledger.replace_games(lease, [event(1), event(2)], 0)
    entries = world.bus.read([keys.samples("r")], keys.LEARNER_GROUP, "c", count=9, block_ms=0)
    for _ in range(2):
        refused = {2: "ply 3 is illegal", 3: "still open", 99: "never opened"}
        world.ledger.record_inserted("r", 1, 0, ack=[entry.id for entry in entries], refused=refused)
        assert world.ledger.counts("r") == LedgerCounts(3, 1, 1, 1, 1, 0, 0)
    assert world.ledger.counts("r").balanced


@pytest.mark.parametrize(
    "damage",
    [
        lambda client: client.hset(keys.run("broken"), "record", b"garbage"),
        lambda client: client.hset(keys.run("broken"), "state", "dreaming"),
        lambda client: client.hset(keys.run("broken"), "changed_ms", "soon"),
        lambda client: client.hdel(keys.run("broken"), "reason"),
    ],
)
def test_a_run_that_cannot_be_read_stops_no_other(broker, damage):
    client = connect(broker.control_url)
    ledger = Ledger(client)
    ledger.create_run(record("broken"))
    ledger.create_run(record("r"))
    damage(client)
    assert [view.record.run for view in ledger.runs()] == ["r"]
    assert [snapshot.view.record.run for snapshot in ledger.snapshots()] == ["r"]
    with pytest.raises(WireError):
        ledger.run("broken")
    client.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda client, job: client.hdel(job, "spec", "tag"),
        lambda client, job: client.hset(job, "spec", b"no frame"),
        lambda client, job: client.hset(job, "state", "dreaming"),
    ],
)
def test_a_job_that_cannot_be_read_stops_no_run(broker, damage):
    client = connect(broker.control_url)
    ledger = Ledger(client)
    for name in ("broken", "r"):
        ledger.create_run(record(name))
        ledger.enqueue(Job("", name, Kind.SELFPLAY, "cpu"))
    damage(client, keys.job("broken", 1))
    assert [(snapshot.view.record.run, len(snapshot.jobs)) for snapshot in ledger.snapshots()] == [("broken", 0), ("r", 1)]
    client.close()


def test_a_record_that_does_not_decode_is_abandoned_with_the_reason(broker):
    client = connect(broker.control_url)
    ledger = Ledger(client)
    ledger.create_run(record("r"))
    lease = ledger.claim(ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id, 1, "w", 10)
    ledger.adopt(lease, 2)
    client.hset(keys.open_games("r"), "1", b"\xc1garbage")
    ledger.release(lease, [])
    again = ledger.claim(ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id, 1, "w", 10)
    assert ledger.adopt(again, 2) == [GameRecord(2)]
    assert ledger.counts("r") == LedgerCounts(2, 0, 1, 1, 0, 0, 0)
    assert b"does not decode" in client.hget(keys.abandoned("r"), "1")
    assert client.hget(keys.run("r"), "record") == encode(record("r"))
    client.close()


def test_in_lockstep_no_game_is_opened_before_its_weights(world):
    sections = msgspec.json.encode({"learner": {"lockstep_games": 4}})
    world.ledger.update_run(RunRecord("r", sections, {}, "folder", 1))
    lease = world.lease()
    assert world.ledger.adopt(lease, 9) == []
    world.ledger.announce_weights("r", b"the first")
    assert [game.uid for game in world.ledger.adopt(lease, 3)] == [1, 2, 3]
    other = world.lease(owner="w2")
    assert [game.uid for game in world.ledger.adopt(other, 3)] == [4]
    _, more = world.ledger.replace_games(lease, [event(1), event(2)], 2)
    assert more == []
    world.ledger.release(lease, [])
    world.ledger.announce_weights("r", b"the second")
    assert [game.uid for game in world.ledger.adopt(other, 9)] == [3, 5, 6, 7, 8]
    assert world.ledger.counts("r").balanced


def test_in_lockstep_suspects_are_played_once_all_other_games_of_the_version_are_over(world):
    world.ledger.update_run(RunRecord("r", msgspec.json.encode({"learner": {"lockstep_games": 4}}), {}, "folder", 1))
    world.ledger.announce_weights("r", b"the first")
    healthy = world.lease(lease_s=100)
    world.ledger.adopt(healthy, 1)
    for _ in range(2):
        world.ledger.fail(lease := world.lease(), "nothing was held", max_attempts=9)
        lease = world.ledger.claim(lease.job.job_id, 2, "w2", 10)
        assert [game.uid for game in world.ledger.adopt(lease, 3)] == [2, 3, 4]
        world.ledger.fail(lease, "its process died", max_attempts=9)
    waiting = world.lease()
    assert world.ledger.adopt(waiting, 3) == [], "game 1 may yet show that the run is sound"
    world.ledger.replace_games(healthy, [event(1)], 0)
    assert sorted(game.uid for game in world.ledger.adopt(waiting, 3)) == [2, 3, 4]
    world.ledger.fail(waiting, "its process died too", max_attempts=9)
    last = world.lease()
    assert sorted(game.uid for game in world.ledger.adopt(last, 3)) == [2, 3, 4], "the run is not sound, and nothing else is left"
    world.ledger.replace_games(last, [event(uid) for uid in (2, 3, 4)], 0)
    assert world.ledger.counts("r").finished == 4
