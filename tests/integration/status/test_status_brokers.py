"""The brokers as the daemon sees them, on a real server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from azq.bus.base import Entry
from azq.bus.redis import RedisBus
from azq.status.brokers import PlaneFacts, open_planes
from azq.wire import keys
from azq.wire.connect import open_client


def test_planes_tell_memory_backlog_and_dead_letters(broker: Any) -> None:
    client = open_client(broker.control_url)
    bus = RedisBus(client)
    for _ in range(3):
        bus.publish(keys.samples("first"), b"frame")
    bus.publish(keys.eval_stream("second"), b"frame")
    bus.dead_letter(Entry(keys.samples("first"), "1-0", b"?"), "no such message")
    control, data = (plane.read(["first", "second"]) for plane in open_planes(client, [client]))
    assert (control.plane, control.up, control.dead_letters) == ("control", True, 1)
    assert control.used_bytes > 100_000
    assert control.waiting == {"first": 3, "second": 0}
    assert data.waiting == {"first": 0, "second": 1}
    client.close()


def test_a_plane_without_server_is_not_up() -> None:
    client = open_client("unix:///nowhere/broker.sock")
    found = [plane.read(["r"]) for plane in open_planes(client, [client])]
    assert [replace(facts, reason="") for facts in found] == [PlaneFacts("control"), PlaneFacts("data")]
    assert all("/nowhere/broker.sock" in facts.reason for facts in found)
