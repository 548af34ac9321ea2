"""A crash leaves a prefix of what the simulated broker wrote, whole units at a time; keys expire by its clock."""

from __future__ import annotations

import pytest
from redis.exceptions import NoScriptError, ResponseError

from azq.parts.sim.broker import Broker
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
    assert broker.written_since(5000) == 2
    assert broker.crash(1) == 1
    assert [client.exists(key) for key in "abcd"] == [1, 1, 1, 0]
    with pytest.raises(NoScriptError):
        client.evalsha(sha, 0)
    broker.crash(1)
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
