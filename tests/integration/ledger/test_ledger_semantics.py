"""What the ledger promises, against memory and a real server alike; times pass by a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from azq.bus.connect import connect
from azq.bus.memory import MemoryBus
from azq.bus.redis import RedisBus
from azq.errors import ConfigError, LeaseLost, NotFound, StateConflict, WireError
from azq.ledger import Ledger, MemoryLedger
from azq.ledger.rules import KEPT_ENDED_JOBS
from azq.ledger.types import Directive, JobState, LedgerCounts, RunState
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import GameRecord, RunRecord, SampleEvent


class World:
    """A ledger, its bus and its clock."""

    def __init__(self, make_ledger, bus) -> None:
        self.now = 1_000_000
        self.bus = bus
        self.ledger = make_ledger(lambda: self.now)
        self.ledger.create_run(record("r"))

    def lease(self, kind: str = "selfplay", *, owner: str = "w1", lease_s: float = 10.0):
        view = self.ledger.enqueue("r", kind, "cpu", games=3)
        lease = self.ledger.claim(view.job.job_id, 1, owner, lease_s)
        assert lease is not None
        return lease

    def pass_s(self, seconds: float) -> None:
        self.now += round(seconds * 1000)

    def samples(self) -> list[int]:
        return [decode(entry.frame, SampleEvent).record.uid for entry in self.bus.after(keys.samples("r"), "0")]


@pytest.fixture(params=["memory", "server"])
def world(request):
    if request.param == "memory":
        bus = MemoryBus()
        yield World(lambda clock: MemoryLedger(bus, clock_ms=clock), bus)
        return
    client = connect(request.getfixturevalue("broker").control_url)
    yield World(lambda clock: Ledger(client, clock_ms=clock), RedisBus(client))
    client.close()


def record(run: str) -> RunRecord:
    return RunRecord(run, b"{}", {"games": 10}, "folder", 1)


def event(uid: int) -> SampleEvent:
    return SampleEvent(GameRecord(uid, b"\1\0"), (1.0, -1.0), "w1", 1)


# -- runs


def test_a_run_is_created_once_and_listed(world):
    with pytest.raises(StateConflict, match="run r exists already"):
        world.ledger.create_run(record("r"))
    world.ledger.create_run(record("another"))
    assert [view.record.run for view in world.ledger.runs()] == ["another", "r"]
    assert world.ledger.run("r").record == record("r")


@pytest.mark.parametrize("name", ["", "Upper", "a:b", "a}b", "../up", "x" * 65, "a\n"])
def test_a_run_name_that_could_not_be_a_key_is_refused(world, name):
    with pytest.raises(ConfigError, match="run name"):
        world.ledger.create_run(record(name))
    assert [view.record.run for view in world.ledger.runs()] == ["r"]


def test_an_unknown_run_is_named_with_those_there_are(world):
    for call in (world.ledger.run, world.ledger.counts, lambda run: world.ledger.enqueue(run, "eval", "cpu")):
        with pytest.raises(NotFound, match="no run 'zz'; there are: r"):
            call("zz")
    assert world.ledger.jobs("zz") == []
    assert world.ledger.expire("zz", 3) == []


def test_active_time_leaves_pauses_out(world):
    world.pass_s(5)
    assert world.ledger.run("r").active_ms == 5000
    world.ledger.set_run_state("r", RunState.PAUSED, "dinner")
    world.pass_s(100)
    view = world.ledger.run("r")
    assert (view.state, view.reason, view.active_ms) == (RunState.PAUSED, "dinner", 5000)
    world.ledger.set_run_state("r", RunState.RUNNING)
    world.pass_s(2)
    assert world.ledger.run("r").active_ms == 7000


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ([RunState.PAUSED, RunState.PAUSED, RunState.RUNNING], True),
        ([RunState.FINISHED, RunState.RUNNING], True),
        ([RunState.FAILED, RunState.RUNNING], True),
        ([RunState.FINISHED, RunState.PAUSED], False),
        ([RunState.FINISHED, RunState.FAILED], False),
        ([RunState.FAILED, RunState.FINISHED], False),
    ],
)
def test_run_states(world, path, allowed):
    *first, last = path
    for state in first:
        world.ledger.set_run_state("r", state)
    if allowed:
        assert world.ledger.set_run_state("r", last).state is last
    else:
        with pytest.raises(StateConflict, match="cannot become"):
            world.ledger.set_run_state("r", last)
        assert world.ledger.run("r").state is first[-1]


def test_a_runs_record_can_be_changed(world):
    assert world.ledger.update_run_until("r", {"minutes": 3}).record == RunRecord("r", b"{}", {"minutes": 3}, "folder", 1)
    changed = RunRecord("r", b"{1}", {}, "elsewhere", 2)
    assert world.ledger.update_run(changed).record == changed
    with pytest.raises(NotFound):
        world.ledger.update_run(record("zz"))


# -- jobs


def test_a_job_is_claimed_once(world):
    view = world.ledger.enqueue("r", "selfplay", "cuda", priority=3, games=7, slice_s=2.5, payload=b"\0\xff")
    assert (view.state, view.attempt, view.published_ms) == (JobState.QUEUED, 1, 0)
    world.ledger.mark_published("r:1", 1)
    assert world.ledger.claim("r:1", 2, "w1", 10) is None
    lease = world.ledger.claim("r:1", 1, "w1", 10)
    assert lease is not None
    assert lease.job == view.job
    assert (lease.job.priority, lease.job.games, lease.job.slice_s, lease.job.payload) == (3, 7, 2.5, b"\0\xff")
    assert world.ledger.claim("r:1", 1, "w1", 10) is None
    assert world.ledger.claim("r:1", 1, "w2", 10) is None
    assert world.ledger.claim("r:99", 1, "w2", 10) is None
    leased = world.ledger.job("r:1")
    assert (leased.state, leased.owner, leased.lease_until_ms) == (JobState.LEASED, "w1", world.now + 10_000)


@pytest.mark.parametrize("job_id", ["", "r", "r:", "r:x", ":1", "r:1:", "zz:1", "r:7", "r:١"])
def test_an_unknown_job_is_not_found(world, job_id):
    for call in (world.ledger.job, world.ledger.cancel, lambda text: world.ledger.requeue(text, 1)):
        with pytest.raises(NotFound, match="no job"):
            call(job_id)


def test_jobs_of_a_paused_run_wait_and_of_a_finished_run_only_evaluate(world):
    selfplay, evaluation = (world.ledger.enqueue("r", kind, "cpu").job.job_id for kind in ("selfplay", "eval"))
    world.ledger.set_run_state("r", RunState.PAUSED)
    assert world.ledger.claim(selfplay, 1, "w", 10) is None
    assert world.ledger.claim(evaluation, 1, "w", 10) is None
    world.ledger.set_run_state("r", RunState.FINISHED)
    assert world.ledger.claim(selfplay, 1, "w", 10) is None
    lease = world.ledger.claim(evaluation, 1, "w", 10)
    assert lease is not None
    assert world.ledger.renew(lease) is Directive.GO_ON
    world.ledger.set_run_state("r", RunState.RUNNING)
    assert world.ledger.claim(selfplay, 1, "w", 10) is not None


def test_jobs_are_listed_by_publication_and_ended_ones_newest_first(world):
    for _ in range(4):
        world.ledger.enqueue("r", "eval", "cpu")
        world.pass_s(1)
    world.ledger.mark_published("r:1", 1)
    world.ledger.cancel("r:2")
    world.ledger.cancel("r:3")
    assert [view.job.job_id for view in world.ledger.jobs("r")] == ["r:4", "r:1"]
    assert [view.job.job_id for view in world.ledger.jobs("r", active_only=False)] == ["r:4", "r:1", "r:3", "r:2"]
    assert [view.job.job_id for view in world.ledger.jobs(active_only=False, limit=1)] == ["r:4", "r:3"]
    world.ledger.mark_published("r:2", 1)  # too late
    assert [view.job.job_id for view in world.ledger.jobs("r")] == ["r:4", "r:1"]


def test_only_the_newest_ended_jobs_are_kept(world):
    for _ in range(KEPT_ENDED_JOBS + 5):
        world.ledger.cancel(world.ledger.enqueue("r", "eval", "cpu").job.job_id)
    assert len(world.ledger.jobs("r", active_only=False)) == KEPT_ENDED_JOBS
    with pytest.raises(NotFound, match="newest 200 ended jobs"):
        world.ledger.job("r:5")
    assert world.ledger.job("r:6").state is JobState.CANCELLED


def test_a_lost_message_gets_a_new_attempt_that_old_copies_cannot_claim(world):
    world.ledger.enqueue("r", "selfplay", "cpu")
    world.ledger.mark_published("r:1", 1)
    view = world.ledger.requeue("r:1", 1)
    assert (view.attempt, view.published_ms, view.state) == (2, 0, JobState.QUEUED)
    assert world.ledger.claim("r:1", 1, "late", 10) is None
    with pytest.raises(StateConflict):
        world.ledger.requeue("r:1", 1)
    assert world.ledger.claim("r:1", 2, "w", 10) is not None
    with pytest.raises(StateConflict, match="leased"):
        world.ledger.requeue("r:1", 2)


def test_lost_messages_do_not_use_up_a_jobs_attempts(world):
    world.ledger.enqueue("r", "selfplay", "cpu")
    for attempt in range(1, 9):
        world.ledger.requeue("r:1", attempt)
    world.ledger.claim("r:1", 9, "w", 1)
    world.pass_s(2)
    assert world.ledger.expire("r", 2)[0].state is JobState.QUEUED


# -- leases


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
        lambda: world.ledger.finish_games(one, [event(1)]),
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
        world.ledger.finish_games(replace(lease, owner="w2"), [event(1)])
    with pytest.raises(LeaseLost):
        world.ledger.release(replace(lease, owner="w2"), [])
    assert world.ledger.finish_games(lease, [event(1)]) is Directive.GO_ON


def test_a_job_fails_after_so_many_bad_leases(world):
    world.ledger.enqueue("r", "selfplay", "cpu")
    for attempt in (1, 2, 3):
        lease = world.ledger.claim("r:1", attempt, "w", 5)
        world.ledger.adopt(lease, 1)
        if attempt == 2:
            world.ledger.fail(lease, "it broke", max_attempts=3)
        else:
            world.pass_s(6)
            world.ledger.expire("r", 3)
    view = world.ledger.job("r:1")
    assert (view.state, view.attempt, view.error) == (JobState.FAILED, 3, "the lease of w ran out")
    assert world.ledger.jobs("r") == []
    with pytest.raises(StateConflict, match="failed"):
        world.ledger.cancel("r:1")
    assert [game.uid for game in world.ledger.adopt(world.lease(), 1)] == [1]


def test_a_job_that_makes_games_outlives_any_number_of_dead_holders(world):
    world.ledger.enqueue("r", "selfplay", "cpu")
    for attempt in range(1, 6):
        lease = world.ledger.claim("r:1", attempt, "w", 5)
        (game,) = world.ledger.adopt(lease, 1)
        world.ledger.finish_games(lease, [event(game.uid)])
        world.ledger.fail(lease, "process 7, which held it, died", max_attempts=2)
    assert world.ledger.job("r:1").state is JobState.QUEUED
    lease = world.ledger.claim("r:1", 6, "w", 5)
    world.ledger.finish_games(lease, [])
    world.ledger.fail(lease, "it broke", max_attempts=2)
    assert world.ledger.job("r:1").state is JobState.FAILED


def test_a_cancelled_lease_is_told_and_ends_cancelled(world):
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    assert world.ledger.cancel("r:1").state is JobState.LEASED
    assert world.ledger.journal(lease, []) is Directive.RELEASE
    world.ledger.release(lease, [])
    assert world.ledger.job("r:1").state is JobState.CANCELLED
    queued = world.ledger.enqueue("r", "selfplay", "cpu").job.job_id
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
    selfplay, evaluation = world.lease("selfplay"), world.lease("eval")
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
    selfplay, evaluation = world.lease("selfplay"), world.lease("eval")
    uids = [game.uid for game in world.ledger.adopt(selfplay, 3)]
    assert world.ledger.finish_games(selfplay, [event(uids[0])]) is Directive.GO_ON
    assert world.ledger.finish_games(selfplay, [event(uids[1])]) is Directive.STALL
    assert world.ledger.renew(evaluation) is Directive.GO_ON
    (entry, *_) = world.bus.read([keys.samples("r")], keys.LEARNER_GROUP, "l", count=1, block_ms=0)
    world.ledger.record_inserted("r", 1, 0, ack=[entry.id])
    assert world.ledger.renew(selfplay) is Directive.GO_ON


def test_a_look_says_what_single_questions_say(world):
    lease = world.lease()
    uids = [game.uid for game in world.ledger.adopt(lease, 3)]
    world.ledger.finish_games(lease, [event(uids[0])])
    for outcome in ("release", "fail", "fail"):
        other = world.lease(owner="w2")
        if outcome == "release":
            world.ledger.release(other, [])
        else:
            world.ledger.fail(other, "broken", max_attempts=1)
    world.ledger.create_run(record("another"))
    looks = {look.view.record.run: look for look in world.ledger.look()}
    assert sorted(looks) == ["another", "r"]
    look = looks["r"]
    assert look == world.ledger.look_at("r")
    assert (look.view, look.counts, list(look.jobs)) == (world.ledger.run("r"), world.ledger.counts("r"), world.ledger.jobs("r"))
    assert [view.state for view in look.ended] == [JobState.FAILED, JobState.FAILED, JobState.DONE]
    with pytest.raises(NotFound, match="another, r"):
        world.ledger.look_at("nobody")


# -- games


def test_finishing_is_all_or_nothing(world):
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    with pytest.raises(LeaseLost):
        world.ledger.finish_games(lease, [event(1), event(99)])
    with pytest.raises(StateConflict, match="twice"):
        world.ledger.finish_games(lease, [event(1), event(1)])
    assert world.ledger.counts("r") == LedgerCounts(2, 0, 2, 0, 0, 0, 0)
    assert world.ledger.finish_games(lease, [event(1), event(2)]) is Directive.GO_ON
    assert world.ledger.counts("r") == LedgerCounts(2, 2, 0, 0, 0, 2, 0)
    assert world.samples() == [1, 2]
    with pytest.raises(LeaseLost):
        world.ledger.finish_games(lease, [event(1)])
    with pytest.raises(LeaseLost):
        world.ledger.journal(lease, [GameRecord(1)])
    assert world.samples() == [1, 2]


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


def test_releasing_twice_is_releasing_once(world):
    lease = world.lease()
    world.ledger.adopt(lease, 3)
    world.ledger.release(lease, [])
    world.ledger.release(lease, [])
    assert world.ledger.job("r:1").state is JobState.DONE
    assert [game.uid for game in world.ledger.adopt(world.lease(), 4)] == [1, 2, 3, 4]


def test_an_abandoned_game_stays_abandoned(world):
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    world.ledger.abandon(lease, 1, "does not replay")
    world.ledger.abandon(lease, 1, "does not replay")
    assert world.ledger.counts("r") == LedgerCounts(2, 0, 1, 1, 0, 0, 0)
    with pytest.raises(LeaseLost):
        world.ledger.abandon(lease, 99, "not mine")
    world.ledger.release(lease, [])
    assert [game.uid for game in world.ledger.adopt(world.lease(), 2)] == [2, 3]


def test_an_evaluation_is_completed_once(world):
    lease = world.lease("eval")
    world.ledger.complete(lease, b"result")
    world.ledger.complete(lease, b"result")
    assert [entry.frame for entry in world.bus.after(keys.results("r"), "0")] == [b"result"]
    assert world.ledger.job("r:1").state is JobState.DONE


def test_counts_balance_when_the_learner_acknowledges_with_its_count(world):
    lease = world.lease()
    world.ledger.adopt(lease, 3)
    world.ledger.finish_games(lease, [event(1), event(2)])
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
    world.ledger.finish_games(lease, [event(1), event(2)])
    entries = world.bus.read([keys.samples("r")], keys.LEARNER_GROUP, "c", count=9, block_ms=0)
    for _ in range(2):
        refused = {2: "ply 3 is illegal", 3: "still open", 99: "never opened"}
        world.ledger.record_inserted("r", 1, 0, ack=[entry.id for entry in entries], refused=refused)
        assert world.ledger.counts("r") == LedgerCounts(3, 1, 1, 1, 1, 0, 0)
    assert world.ledger.counts("r").balanced


def test_two_runs_share_nothing(world):
    world.ledger.create_run(record("s"))
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    other = world.ledger.claim(world.ledger.enqueue("s", "selfplay", "cpu").job.job_id, 1, "w1", 10)
    assert [game.uid for game in world.ledger.adopt(other, 1)] == [1]
    world.ledger.finish_games(other, [event(1)])
    assert world.ledger.counts("r") == LedgerCounts(2, 0, 2, 0, 0, 0, 0)
    assert world.ledger.counts("s") == LedgerCounts(1, 1, 0, 0, 0, 1, 0)
    world.ledger.set_run_state("s", RunState.PAUSED)
    assert world.ledger.renew(lease) is Directive.GO_ON
    assert world.samples() == []


def test_a_run_that_does_not_decode_stops_no_other(broker):
    client = connect(broker.control_url)
    ledger = Ledger(client)
    ledger.create_run(record("broken"))
    ledger.create_run(record("r"))
    client.hset(keys.run("broken"), "record", b"garbage")
    assert [view.record.run for view in ledger.runs()] == ["r"]
    with pytest.raises(WireError):
        ledger.run("broken")
    client.close()


def test_a_record_that_does_not_decode_is_abandoned_with_the_reason(broker):
    client = connect(broker.control_url)
    ledger = Ledger(client)
    ledger.create_run(record("r"))
    lease = ledger.claim(ledger.enqueue("r", "selfplay", "cpu").job.job_id, 1, "w", 10)
    ledger.adopt(lease, 2)
    client.hset(keys.open_games("r"), "1", b"\xc1garbage")
    ledger.release(lease, [])
    again = ledger.claim(ledger.enqueue("r", "selfplay", "cpu").job.job_id, 1, "w", 10)
    assert ledger.adopt(again, 2) == [GameRecord(2)]
    assert ledger.counts("r") == LedgerCounts(2, 0, 1, 1, 0, 0, 0)
    assert b"does not decode" in client.hget(keys.abandoned("r"), "1")
    assert client.hget(keys.run("r"), "record") == encode(record("r"))
    client.close()
