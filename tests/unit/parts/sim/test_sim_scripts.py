"""The ledger's Lua in this process and in a server: the same random commands, the same answers, the same keys."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_histories import RUNS, History, operations
from memory_broker import MemoryBus
from redis.exceptions import ResponseError

from azq.parts.sim.broker import Broker
from azq.parts.sim.client import Command, SimulatedClient
from azq.wire import keys

NONSENSE = st.tuples(st.sampled_from((keys.pool, keys.open_games, keys.ledger, keys.strikes)), st.integers(1, 60), st.integers(0, 2))


def state(client: Any) -> dict[str, Any]:
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


def spoil(history: History, key: Any, uid: int, which: int) -> None:
    """What a worker with rights may write, its repair, and what is answered then."""
    run = RUNS[0]
    commands: list[Command] = [("LPUSH", keys.pool(run), uid), ("HSET", keys.ledger(run), "finished", "x"), ("SET", key(run), "nonsense")]
    for bus in history.buses:
        if which == 2:
            bus.client.delete(key(run))
        with suppress(ResponseError):  # of a key that is nonsense already
            bus.client.execute_command(*commands[which])
    history.ledger.mend()
    history.ledger.snapshots()
    for lease in history.leases[-3:]:
        history.tried("adopt", lease, 3)
        history.tried("release", lease, [])


@pytest.mark.parametrize("spoilt", [0, 4])
def test_a_server_and_this_process_answer_alike_and_hold_the_same(spoilt):
    opened = []

    @settings(max_examples=45, deadline=None)
    @given(st.lists(operations, min_size=20, max_size=100), st.lists(NONSENSE, max_size=spoilt))
    def alike(history, nonsense):
        there = MemoryBus(SimulatedClient(Broker(lambda: 1_000_000).exchange))
        play = History(there)
        for operation in history:
            play.do(*operation)
        for words in nonsense:
            spoil(play, *words)
        for run in RUNS:
            play.ledger.jobs(run)
            play.ledger.jobs_below(run, active_only=False)
            opened.append(play.ledger.counts(run).opened)
        assert state(play.bus.client) == state(there.client)

    alike()
    assert sum(opened) > 150  # or these commands meet nothing
