"""Nonsense in a ledger's keys, written with a machine's rights or the owner's, is mended, and no open game is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from ledger_worlds import World, event
from memory_broker import MemoryBus

from azq.errors import AccessRefused, BrokerUnavailable
from azq.ledger.types import Lease
from azq.status.conditions import read_mended
from azq.wire import acl, keys
from azq.wire.connect import agree_on_schema, connect, translate
from azq.wire.kinds import Kind
from azq.wire.messages import Job

POOL, OPEN, LEDGER, JOBS, DONE, STRIKES = (
    key("r") for key in (keys.pool, keys.open_games, keys.ledger, keys.jobs, keys.jobs_done, keys.strikes)
)


@pytest.fixture
def client(broker: Any) -> Iterator[redis.Redis]:
    with connect(broker.control_url) as client:
        yield client


def as_user(broker: Any, owner: redis.Redis, user: str, *roles: keys.Role) -> Iterator[redis.Redis]:
    owner.execute_command("ACL", "SETUSER", user, "reset", "nopass", *acl.rules(user, roles))
    with connect(broker.control_url.replace("unix://", f"unix://{user}:x@", 1)) as client:
        yield client
    owner.execute_command("ACL", "DELUSER", user)


@pytest.fixture
def machine(broker: Any, client: redis.Redis) -> Iterator[redis.Redis]:
    yield from as_user(broker, client, "machine-m", "worker", "inference")


@pytest.fixture
def daemon(broker: Any, client: redis.Redis) -> Iterator[redis.Redis]:
    yield from as_user(broker, client, "a-daemon", "daemon")


@pytest.fixture
def world(daemon: redis.Redis) -> World:
    """With the daemon's rights. Games 1 to 4 lie in the pool, 5 and 6 are held, 7 is finished; job 1 ended, 2 is leased, 3 queued."""
    world = World(MemoryBus(daemon))
    first = world.lease()
    world.ledger.adopt(first, 4)
    world.ledger.release(first, [])
    lease = world.lease()
    games = world.ledger.adopt(lease, 7)
    world.ledger.replace_games(lease, [event(7)], 0)
    world.ledger.release(lease, games[:-1])
    lease = world.lease()
    world.ledger.adopt(lease, 2)
    world.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    return world


def plays_on(world: World) -> None:
    """Whoever comes gets each game that nobody holds, then new ones, and all of them are finished."""
    counts = world.ledger.counts("r")
    assert (counts.opened, counts.finished, counts.open) == (7, 1, 6)
    view = next(view for view in world.ledger.jobs("r") if view.state == "queued")
    lease = world.ledger.claim(view.job.job_id, view.attempt, "w2", 10.0)
    held = {int(uid) for uid in world.ledger.client.smembers(keys.held("r", 3))}
    games = [game.uid for game in world.ledger.adopt(lease, 7 - len(held))]
    assert sorted({*games, *held}) == [1, 2, 3, 4, 5, 6, 8]
    world.ledger.replace_games(lease, [event(uid) for uid in games], 0)
    world.ledger.release(lease, [])
    assert world.ledger.counts("r").opened == 8
    assert world.ledger.mend() == {}


Attack = Callable[[redis.Redis], Any]
BY_MACHINES: dict[str, tuple[Attack, str]] = {
    "games taken from the pool": (lambda m: m.lpop(POOL, 3), "did not hold the open games"),
    "nonsense in the pool": (lambda m: m.lpush(POOL, "x", "99", "-1", ""), "did not hold the open games"),
    "a game twice": (lambda m: m.rpush(POOL, "1", "1", "5"), "did not hold the open games"),
    "games that nobody opened": (lambda m: m.hset(OPEN, mapping={"x": "", "99": ""}), "did not hold the open games"),
    "another's game held": (lambda m: m.sadd(keys.held("r", 3), "x", "1"), "did not hold the open games"),
    "a count that is no number": (lambda m: m.hset(LEDGER, "opened", "x"), "is no number"),
    "counts taken away": (lambda m: m.hdel(LEDGER, "opened", "finished", "job_seq"), "counted too few"),
    "a job that is none": (lambda m: m.zadd(JOBS, {"x": 0, "77": 0}), "named what is no job"),
    "ended jobs that are none": (lambda m: m.lpush(DONE, "x", "88"), "named what is no job"),
    "strikes that are no number": (lambda m: m.hset(STRIKES, "1", "x"), "is no number"),
}


@pytest.mark.parametrize("attack", BY_MACHINES)
def test_what_a_machine_writes_is_mended_and_play_goes_on(world: World, machine: redis.Redis, attack: str) -> None:
    do, what = BY_MACHINES[attack]
    do(machine)
    if "taken away" in attack:
        world.ledger.client.hset(LEDGER, "inserted", 1)  # the learner's own count is there again after its next turn
        world.ledger.client.delete(keys.samples("r"))
    wrong = world.ledger.mend()["r"]
    assert any(what in each for each in wrong), wrong
    assert world.ledger.mend() == {}
    assert sorted(read_mended(world.bus.get(keys.mended("r")))) == wrong
    plays_on(world)


@pytest.mark.parametrize("fields", [{"attempt": "x"}, {"state": "x"}, {"lease_until_ms": ""}, {"failures": "x"}])
def test_a_job_that_nobody_can_read_is_put_aside_and_its_games_are_free(world: World, machine: redis.Redis, fields: dict[Any, Any]) -> None:
    machine.hset(keys.job("r", 3), mapping=fields)
    assert world.ledger.mend() == {"r": [f"{JOBS} named what is no job", f"{POOL} did not hold the open games without a lease"]}
    assert world.ledger.client.hgetall(keys.aside("r") + "job:3")
    plays_on(world)


def test_a_pool_keeps_the_order_of_what_is_left_behind_what_was_missing(world: World, client: redis.Redis) -> None:
    client.delete(POOL)
    client.rpush(POOL, "3", "6")
    assert world.ledger.mend() == {"r": [f"{POOL} did not hold the open games without a lease"]}
    assert world.ledger.client.lrange(POOL, 0, -1) == [b"4", b"5", b"3", b"6"]


def test_a_lost_count_of_abandoned_games_is_counted_again(world: World) -> None:
    world.ledger.client.hset(keys.abandoned("r"), "8", "why")
    assert world.ledger.mend() == {"r": [f"{LEDGER} counted too few in abandoned", f"{LEDGER} counted too few in opened"]}
    assert world.ledger.counts("r").abandoned == 1
    assert world.ledger.mend() == {}


def test_games_that_are_inserted_and_open_again_are_not_counted_as_finished(world: World) -> None:
    """As after a broker lost its last commands, and the learner has more games than it counted."""
    world.ledger.client.hset(LEDGER, "inserted", 2)
    assert world.ledger.mend() == {}
    assert (world.ledger.counts("r").finished, world.ledger.counts("r").opened) == (1, 7)


def test_what_stops_a_run_is_refused_to_machines_and_mended_whoever_does_it(
    world: World, machine: redis.Redis, client: redis.Redis
) -> None:
    with pytest.raises(AccessRefused), translate(machine):
        machine.delete(POOL)
    with pytest.raises(AccessRefused), translate(machine):
        machine.sadd(POOL, "x")
    for key, wrong in ((POOL, "SADD"), (DONE, "SADD"), (STRIKES, "SADD"), (keys.held("r", 3), "RPUSH")):
        client.delete(key)
        client.execute_command(wrong, key, "x")
    assert f"WRONGTYPE of {POOL}, a set in place of a list" in world.ledger.mend()["r"]
    assert world.ledger.client.smembers(keys.aside("r") + "pool") == {b"x"}, "what was there can be looked at"
    assert 0 < world.ledger.client.ttl(keys.aside("r") + "pool") <= 3600
    plays_on(world)


def test_what_meets_a_wrong_key_has_changed_nothing_and_goes_through_once_that_is_mended(world: World, client: redis.Redis) -> None:
    """A worker asks again for as long as its lease lives."""
    (view,) = (view for view in world.ledger.jobs("r") if view.state == "leased")
    lease = Lease(view.job, view.attempt, view.owner, 10.0)
    client.delete(POOL)
    client.sadd(POOL, "x")
    held = sorted(map(int, client.smembers(keys.held("r", 3))))
    for ask in (lambda: world.ledger.replace_games(lease, [event(held[0])], 1), lambda: world.ledger.adopt(lease, 1)):
        with pytest.raises(BrokerUnavailable, match=r"WRONGTYPE.*the daemon mends such a key within seconds"):
            ask()
    assert (world.ledger.counts("r").finished, world.samples()) == (1, [7])
    assert world.ledger.mend()
    _, (game,) = world.ledger.replace_games(lease, [event(held[0])], 1)
    assert world.samples() == [7, held[0]]
    assert game.uid not in held


def test_one_call_a_run_looks_at_types_and_counts_alone(world: World) -> None:
    """What the daemon asks every few ticks, a look at the schema beside it: no game is read where all is well."""
    client = world.ledger.client
    world.ledger.mend(["r"])
    before = client.info("commandstats")
    world.ledger.mend(["r"])
    after = client.info("commandstats")
    ran = {name: row["calls"] - before.get(name, {"calls": 0})["calls"] for name, row in after.items()}
    called = {name.removeprefix("cmdstat_"): count for name, count in ran.items() if count and "info" not in name}
    assert called.pop("evalsha") == 1
    assert sum(called.values()) <= 50, called
    assert not {"hkeys", "lrange"} & set(called) - {"lrange"}
    assert called["lrange"] == 1, "the ended jobs"


def test_the_schema_that_a_rolled_back_broker_forgot_is_marked_again(world: World) -> None:
    world.ledger.client.delete(keys.SCHEMA)
    world.ledger.mend()
    agree_on_schema(world.ledger.client)
