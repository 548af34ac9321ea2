"""A crash leaves a prefix of what the simulated broker wrote, whole units at a time; keys expire by its clock."""

from __future__ import annotations

import pytest
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from azq.parts.sim.broker import FULL, READ_ONLY, Broker
from azq.parts.sim.client import SimulatedClient


def test_a_crash_takes_the_newest_units_whole_and_forgets_scripts():
    now = [1000]
    broker = Broker(lambda: now[0])
    client = SimulatedClient(broker.exchange)
    client.set("a", 1)
    sha = client.script_load("redis.call('SET', 'b', 1) redis.call('SET', 'c', 1) return redis.call('GET', 'c')")
    now[0] = 5000
    assert client.evalsha(sha, 0) == b"1"
    together = client.pipeline()
    together.rpush("d", 1)
    together.rpush("d", 2)
    together.execute()
    assert broker.crash(0.5, 5000)
    assert [client.exists(key) for key in "abcd"] == [1, 1, 1, 0]
    with pytest.raises(NoScriptError):
        client.evalsha(sha, 0)
    assert broker.crash(1.0, 5000)
    assert [client.exists(key) for key in "abcd"] == [1, 0, 0, 0]


def test_keys_expire_by_its_clock():
    now = [1000]
    client = SimulatedClient(Broker(lambda: now[0]).exchange)
    client.set("a", "x", px=500)
    now[0] = 1499
    assert client.get("a") == b"x"
    now[0] = 1500
    assert client.get("a") is None


def test_commands_that_it_has_not_are_refused():
    with pytest.raises(ResponseError, match="unknown command 'FLUSHALL'"):
        SimulatedClient(Broker(lambda: 0).exchange).flushall()


@pytest.mark.parametrize(("refusal", "error"), [(FULL, OutOfMemoryError), (READ_ONLY, ReadOnlyError)])
def test_what_writes_is_refused_alone_in_scripts_and_in_transactions(refusal, error):
    broker = Broker(lambda: 0)
    client = SimulatedClient(broker.exchange)
    client.hset("a", "x", 1)
    broker.refusal = refusal
    together = client.pipeline()
    together.delete("a")
    for refused in (lambda: client.set("b", 1), lambda: client.eval("return redis.call('SET', 'b', 1)", 0), together.execute):
        with pytest.raises(error):
            refused()
    assert client.hgetall("a") == {b"x": b"1"}
    assert client.eval("return redis.pcall('SET', 'b', 1).err and 1", 0) == 1


def test_without_memory_it_frees_and_lets_a_script_go_on_that_wrote_before():
    broker = Broker(lambda: 0)
    client = SimulatedClient(broker.exchange)
    client.hset("a", "x", 1)
    broker.refusal = FULL
    assert client.eval("redis.call('HDEL', 'a', 'y') return redis.call('HINCRBY', 'b', 'c', 1)", 0) == 1
    assert client.delete("a") == 1
