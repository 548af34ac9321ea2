"""The first connection of a service: a broker that is away at boot is waited for, however late it comes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from waiting import PATIENCE_S

from azq.bus import redis as redis_bus
from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus, connect_at_start
from azq.config import BrokerConfig
from azq.errors import BrokerRefused, BrokerUnavailable
from azq.waiting import Backoff


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A service manager's end of the notify socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    listener.settimeout(PATIENCE_S)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setattr(redis_bus, "BACKOFF", Backoff(0.01, 0.01))
    with listener:
        yield listener


def test_a_service_waits_for_its_broker_and_says_so(manager: socket.socket, tmp_path: Path) -> None:
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    url = server.url
    server.stop()
    found: list[redis.Redis] = []
    waiter = threading.Thread(target=lambda: found.append(connect_at_start(BrokerConfig(control_url=url))), daemon=True)
    waiter.start()
    said = [manager.recv(4096).decode() for _ in range(3)]  # several tries, and the broker is still away
    assert all(text.startswith("STATUS=waiting for the broker: no broker at unix://") for text in said)
    assert all("\nEXTEND_TIMEOUT_USEC=" in text for text in said)
    assert not found
    server.start()
    try:
        waiter.join(PATIENCE_S)
        (client,) = found
        assert client.ping()
        client.close()
    finally:
        server.stop()


def test_a_person_hears_at_once_that_there_is_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with pytest.raises(BrokerUnavailable):
        connect_at_start(BrokerConfig(control_url=f"unix://{tmp_path / 'none.sock'}"))


def test_a_broker_that_refuses_is_not_waited_for(manager: socket.socket, broker: Any) -> None:
    with pytest.raises(BrokerRefused):
        connect_at_start(BrokerConfig(control_url=broker.control_url.replace("unix://:", "unix://:wrong")))


def test_the_failure_of_what_was_posted_is_told_once(broker: Any) -> None:
    bus = RedisBus(broker.data_url)
    bus.put("s", b"no stream")
    bus.post("s", b"1")
    with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
        bus.take_replies("r", timeout_s=0.1)
    assert bus.take_replies("r", timeout_s=0.0) == []
    bus.delete("s")
    bus.close()
