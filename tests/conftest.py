"""Fixtures for every test: a real broker, embedded, on unix sockets that live as long as the session."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
from httpx2._config import DEFAULT_TIMEOUT_CONFIG as OF_A_REQUEST
from hypothesis import settings

from azq.bus.embedded import EmbeddedServer
from azq.wire.connect import connect

settings.register_profile("azq", deadline=None)  # a busy machine is no failure
if settings.get_current_profile_name() == "default":
    settings.load_profile("azq")
# The same of a request's usual five seconds.
OF_A_REQUEST.connect = OF_A_REQUEST.read = OF_A_REQUEST.write = OF_A_REQUEST.pool = 60.0


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    """What a command of one test made of the log is over with it."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@dataclass(frozen=True)
class Broker:
    """Both planes of a broker."""

    control_url: str
    data_url: str
    control: EmbeddedServer
    data: EmbeddedServer


@pytest.fixture(scope="session")
def broker_servers() -> Iterator[Broker]:
    """Two embedded servers; they end with the session, and with its process."""
    with tempfile.TemporaryDirectory(prefix="azq-test-") as folder:
        control = EmbeddedServer("control", Path(folder) / "control")
        data = EmbeddedServer("data", Path(folder) / "data")
        try:
            control.start()
            data.start()
            yield Broker(control.url, data.url, control, data)
        finally:
            data.stop()
            control.stop()


@pytest.fixture
def broker(broker_servers: Broker) -> Broker:
    """Both planes, empty at the start of the test."""
    for url in (broker_servers.control_url, broker_servers.data_url):
        client = connect(url)
        client.flushall()
        client.close()
    return broker_servers
