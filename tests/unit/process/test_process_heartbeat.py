"""A process says who it is and what it costs, as often as its owner wants, and takes that back."""

from __future__ import annotations

import os

from memory_broker import MemoryBus

from azq import metrics
from azq.process.heartbeat import Presence
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import SCHEMA, Heartbeat


def test_a_heartbeat_tells_who_it_is_and_what_is_new() -> None:
    bus, presence = MemoryBus(), Presence("learner", life_s=8.0, run="first")
    presence.beat(bus, {"samples_per_s": 3.0}, weight_versions={"first": 7})
    sent = decode(bus.get(keys.beat(presence.worker)) or b"", Heartbeat)
    assert (sent.role, sent.run, sent.pid, sent.schema, sent.weight_versions) == ("learner", "first", os.getpid(), SCHEMA, {"first": 7})
    assert sent.worker == f"learner@{sent.host}:{os.getpid()}"
    assert sent.sent_ms >= sent.started_ms > 0
    assert sent.rates["samples_per_s"] == 3.0
    assert sent.rates.keys() <= {"samples_per_s", metrics.CPU_S, metrics.RESIDENT_BYTES}
    presence.leave(bus)
    assert bus.get(keys.beat(presence.worker)) is None


def test_the_first_one_is_due_at_once_and_the_next_one_later() -> None:
    presence = Presence("inference", life_s=8.0, every_s=3600.0, worker="inference@here:1")
    assert presence.worker == "inference@here:1"
    assert presence.due()
    assert not presence.due()


def test_what_is_never_late_is_always_due() -> None:
    presence = Presence("daemon", life_s=8.0)
    assert presence.due()
    assert presence.due()
