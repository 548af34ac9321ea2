"""What only the double has: a clock of the test's own, and an outage on request."""

from __future__ import annotations

import threading

import pytest

from azq.bus.base import Bus
from azq.bus.memory import MemoryBus
from azq.errors import BrokerUnavailable


class Clock:
    """Seconds that pass when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lives_and_idle_times_follow_the_clock():
    clock = Clock()
    bus: Bus = MemoryBus(clock=clock)
    bus.put("k", b"v", life_s=5)
    bus.reply([("r", b"x")], life_s=5)
    bus.publish("s", b"1")
    bus.read(["s"], "g", "a", count=1, block_ms=0)
    clock.now += 4.9
    assert bus.get("k") == b"v"
    assert bus.claim("s", "g", "b", min_idle_ms=5000, count=1) == []
    clock.now += 0.2
    assert bus.get("k") is None
    assert bus.values("k") == {}
    assert bus.take_replies("r", timeout_s=0) == []
    assert len(bus.claim("s", "g", "b", min_idle_ms=5000, count=1)) == 1
    assert bus.claim("s", "g", "c", min_idle_ms=5000, count=1) == []


def test_ids_grow_within_one_moment_and_when_the_clock_stands():
    bus = MemoryBus(clock=Clock())
    ids = [bus.publish("s", b"") for _ in range(3)]
    assert ids == ["100000-0", "100000-1", "100000-2"]


def test_a_bus_that_is_down_refuses_everything_and_forgets_nothing():
    bus = MemoryBus()
    bus.put("k", b"v")
    bus.down = True
    calls = [
        lambda: bus.publish("s", b""),
        lambda: bus.read(["s"], "g", "c", count=1, block_ms=0),
        lambda: bus.claim("s", "g", "c", min_idle_ms=0, count=1),
        lambda: bus.ack("s", "g", ["1-0"]),
        lambda: bus.after("s", "0"),
        lambda: bus.newest("s"),
        lambda: bus.length("s"),
        lambda: bus.reply([("r", b"")]),
        lambda: bus.take_replies("r", timeout_s=0),
        lambda: bus.put("k", b"w"),
        lambda: bus.get("k"),
        lambda: bus.values("k"),
        lambda: bus.delete("k"),
        bus.ping,
    ]
    for call in calls:
        with pytest.raises(BrokerUnavailable):
            call()
    bus.down = False
    assert bus.get("k") == b"v"


def test_a_reader_that_waits_hears_of_the_outage():
    bus = MemoryBus()
    heard = threading.Event()

    def wait() -> None:
        with pytest.raises(BrokerUnavailable):
            bus.read(["s"], "g", "c", count=1, block_ms=20_000)
        heard.set()

    reader = threading.Thread(target=wait)
    reader.start()
    bus.down = True
    assert heard.wait(60.0)
    reader.join(10)
