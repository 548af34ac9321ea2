"""The ledger's Lua in this process and in a server: the same random commands, the same answers, the same keys."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgpack
import pytest
from ledger_worlds import event, record
from memory_broker import MemoryBus, MemoryLedger
from redis.exceptions import ResponseError

from azq.errors import AzqError
from azq.ledger import Ledger
from azq.ledger.types import Effort, LearnerLease, Lease, RequestKey, RunState
from azq.parts.sim.broker import Broker
from azq.parts.sim.client import Command, SimulatedClient
from azq.wire import keys
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job

COMMANDS = 1250  # of each seed
OWNERS = ("w1", "w2", "w3")
RUN = "r"


class Pair:
    """One ledger on a server and one in this process, with one clock; every command goes to both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        self.server = MemoryLedger(MemoryBus(), clock_ms=lambda: self.now_ms)
        self.client = SimulatedClient(Broker(lambda: 1_000_000).exchange)
        self.simulated = Ledger(self.client, clock_ms=lambda: self.now_ms)
        self.leases: list[Lease] = []
        self.learners: list[LearnerLease] = []

    def both(self, call: Callable[[Ledger], Any]) -> Any:
        """What both answer; None where both refuse."""
        answers = [_answer(call, ledger) for ledger in (self.server, self.simulated)]
        assert answers[0] == answers[1]
        return None if isinstance(answers[0], type) else answers[0]

    def job(self) -> str:
        """A job, mostly one that has not ended."""
        there = [int(cast(bytes, number)) for number in self.client.zrange(keys.jobs(RUN), 0, -1)] if self.rng.random() < 0.9 else []
        return f"{RUN}:{self.rng.choice(there or [self.rng.randint(1, 12)])}"

    def uids(self, most: int = 4) -> list[int]:
        return self.rng.sample(range(1, 40), self.rng.randint(0, most))

    def lease(self) -> Lease:
        if self.leases and self.rng.random() < 0.9:
            return self.rng.choice(self.leases[-6:])
        return Lease(Job(self.job(), RUN, Kind.SELFPLAY, "cpu"), 1, "w1", 5.0)

    def held(self, lease: Lease) -> list[int]:
        """Games, mostly of the lease."""
        number = lease.job.job_id.split(":")[1]
        mine = sorted(int(uid) for uid in self.client.smembers(keys.held(RUN, number)))
        return self.rng.sample(mine, min(len(mine), 3)) if self.rng.random() < 0.9 else self.uids(2)

    def learner(self) -> LearnerLease | None:
        return self.rng.choice([None, *self.learners[-3:]])

    def state(self, client: Any) -> dict[str, Any]:
        """All keys; of streams without ids, and of what a repair noted without order: it is that of a table in Lua."""
        reading = {
            b"string": lambda key: unpacked(client.get(key)),
            b"hash": lambda key: client.hgetall(key),
            b"set": lambda key: sorted(client.smembers(key)),
            b"list": lambda key: client.lrange(key, 0, -1),
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"stream": lambda key: sorted(repr(unpacked(fields[b"f"])) for _, fields in client.xrevrange(key, count=100_000)),
        }
        return {key.decode(): reading[client.type(key)](key) for key in sorted(client.scan_iter(match="*"))}


def unpacked(frame: bytes) -> Any:
    """What msgpack makes of it, maps in order of their names."""
    try:
        return _sorted(msgpack.unpackb(frame, strict_map_key=False, raw=True))
    except (ValueError, msgpack.UnpackException):
        return frame


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((name, _sorted(item)) for name, item in value.items())
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _answer(call: Callable[[Ledger], Any], ledger: Ledger) -> Any:
    try:
        return call(ledger)
    except AzqError as error:
        return type(error)


def step(pair: Pair) -> None:
    """One random command."""
    rng = pair.rng
    pair.now_ms += rng.choice((0, 1, 200, 3000))
    lease, job, attempt, key = pair.lease(), pair.job(), rng.choice((1, 1, 2, 3)), RequestKey.of("p", str(rng.randint(1, 5)), b"b")
    games = [GameRecord(uid, bytes([rng.randint(0, 9)])) for uid in pair.held(lease)]
    kind = rng.choice((Kind.SELFPLAY, Kind.SELFPLAY, Kind.EVAL))
    owner, count = rng.choice(OWNERS), rng.randint(0, 5)
    free = pair.uids()
    effort = Effort(rng.randint(0, 50), rng.randint(0, 50), rng.randint(0, 9))
    match rng.randint(0, 27):
        case 0 | 1 if count < 3:
            pair.both(lambda ledger: ledger.enqueue(Job("", RUN, kind, "cpu", games=3)))
        case 3:
            pair.both(lambda ledger: ledger.enqueue_once(key, Job("", RUN, kind, "cpu")))
        case 4 | 5 | 6 | 7:
            if taken := pair.both(lambda ledger: ledger.claim(job, attempt, owner, 5.0)):
                pair.leases.append(taken)
        case 8 | 9 | 10:
            pair.both(lambda ledger: ledger.adopt(lease, count))
        case 11:
            pair.both(lambda ledger: ledger.adopt_named(lease, free))
        case 12 | 13:
            pair.both(lambda ledger: ledger.journal(lease, games))
        case 14 | 15 | 16:
            pair.both(lambda ledger: ledger.replace_games(lease, [event(game.uid) for game in games], count))
        case 17:
            pair.both(lambda ledger: ledger.abandon(lease, (games or [GameRecord(3)])[0].uid, "why"))
        case 18:
            pair.both(lambda ledger: ledger.release(lease, games))
        case 19:
            pair.both(lambda ledger: ledger.complete(lease, b"result", "bad" if count == 0 else ""))
        case 20:
            pair.both(lambda ledger: ledger.expire(RUN, 3))
        case 21:
            pair.both(lambda ledger: (ledger.renew(lease), ledger.count_work(lease, effort)))
        case 22:
            state = rng.choice((RunState.PAUSED, RunState.FINISHED, *[RunState.RUNNING] * 4))
            pair.both(lambda ledger: ledger.set_run_state(RUN, state, "reason"))
        case 23:
            _of_a_job(pair, job, attempt, lease, count)
        case 24 | 25:
            _of_the_learner(pair, count)
        case 26 if count == 0:
            _nonsense(pair)
        case 26 if count == 1:
            pair.both(lambda ledger: (ledger.snapshots(), ledger.jobs(RUN), ledger.jobs_below(RUN, active_only=False), ledger.counts(RUN)))


def _of_a_job(pair: Pair, job: str, attempt: int, lease: Lease, which: int) -> None:
    calls: Sequence[Callable[[Ledger], Any]] = (
        lambda ledger: ledger.cancel(job),
        lambda ledger: ledger.job(job),
        lambda ledger: ledger.requeue(job, attempt),
        lambda ledger: ledger.mark_published(job, attempt),
        lambda ledger: ledger.fail(lease, "error"),
        lambda ledger: ledger.fail(lease, "error", max_attempts=1),
    )
    pair.both(calls[which])


def _of_the_learner(pair: Pair, which: int) -> None:
    rng, place = pair.rng, pair.learner()
    holder, uid = rng.choice(("l1:1", "l2:2")), rng.randint(1, 40)
    match which:
        case 0 | 1:
            if taken := pair.both(lambda ledger: ledger.take_learner(RUN, holder, 10.0)):
                pair.learners.append(taken)
        case 2 if place:
            pair.both(lambda ledger: ledger.renew_learner(place))
        case 3:
            pair.both(lambda ledger: ledger.record_inserted(RUN, uid, 1, refused={uid: "rules"}, lease=place))
        case 4 if uid % 8 == 0:
            pair.both(lambda ledger: ledger.restore(RUN, uid, uid, [(1, uid)], place))
        case _:
            pair.both(lambda ledger: ledger.announce_weights(RUN, b"weights", place))


def _nonsense(pair: Pair) -> None:
    """What a worker with rights may write, and its repair."""
    name, uid = pair.rng.choice((keys.pool, keys.open_games, keys.ledger, keys.strikes))(RUN), pair.rng.randint(1, 60)
    commands: list[Command] = [("LPUSH", keys.pool(RUN), uid), ("HSET", keys.ledger(RUN), "finished", "x"), ("SET", name, "nonsense")]
    command = commands[pair.rng.randint(0, 2)]
    for client in (pair.server.client, pair.simulated.client):
        if command[0] == "SET":
            client.delete(name)
        with suppress(ResponseError):  # of a key that is nonsense already
            client.execute_command(*command)
    pair.both(lambda ledger: ledger.mend())


@pytest.mark.parametrize("seed", range(8))
def test_a_server_and_this_process_answer_alike_and_hold_the_same(seed):
    pair = Pair(seed)
    pair.both(lambda ledger: ledger.create_run(record(RUN)))
    for _ in range(COMMANDS):
        step(pair)
    assert pair.state(pair.server.client) == pair.state(pair.simulated.client)
    assert pair.both(lambda ledger: ledger.counts(RUN)).opened > 20  # or these commands meet nothing
