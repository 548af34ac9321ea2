"""Connections that ask a gateway for nothing: tabs and pages go on, and nobody is written about more than once."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.websockets import WebSocket
from structlog.testing import capture_logs
from waiting import until
from websockets.sync.client import ClientConnection, connect

from azq.config import GatewayConfig
from azq.process.door import Door
from azq.process.webserver import open_door
from azq.volunteers.pages import make_site
from workers.gateway import serving

MOST = 32
HALF_OPEN = 300
STRANGER, VISITOR, TAB = "127.0.0.2", "127.0.0.3", "127.0.0.4"


async def echo(tab: WebSocket) -> None:
    await tab.accept()
    async for frame in tab.iter_bytes():
        await tab.send_bytes(frame)


@pytest.fixture
def door() -> Iterator[Door]:
    """A gateway's, whose tabs hear what they say."""

    async def nothing() -> None:
        pass

    gateway: Any = SimpleNamespace(talk=echo, look=nothing, turn=nothing, stop=nothing)
    config = GatewayConfig(port=0)
    with (
        open_door(config, "gateway", most=MOST) as listener,
        serving(make_site(gateway, SimpleNamespace(read=None), SimpleNamespace(figures=None, playable=None)), listener, config),  # type: ignore[arg-type]
    ):
        yield listener


def tab(door: Door) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{door.getsockname()[1]}/v1/volunteers/tab", source_address=(TAB, 0), compression=None, proxy=None)


def answer(door: Door) -> bytes:
    """What a visitor is answered who asks for the gateway's health."""
    with socket.create_connection(door.getsockname(), 30, (VISITOR, 0)) as visitor:
        visitor.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return visitor.recv(12)


def test_half_open_connections_of_one_address_harm_nobody(door: Door) -> None:
    with capture_logs() as lines, contextlib.ExitStack() as stack:
        mine = stack.enter_context(tab(door))
        for number in range(HALF_OPEN):
            one = stack.enter_context(socket.create_connection(door.getsockname(), 30, (STRANGER, 0)))
            with contextlib.suppress(ConnectionError):
                one.sendall(b"GET / HTTP/1.1\r\nHost: 127.")
            if number % 100 == 0:
                assert answer(door) == b"HTTP/1.1 200"
        until(lambda: sum(each.address == STRANGER for each in tuple(door.visitors.values())) <= MOST // 2, "those who were turned away")
        mine.send(b"still here")
        assert mine.recv(30) == b"still here"
        assert answer(door) == b"HTTP/1.1 200"
        assert len(door.visitors) <= MOST
    assert len([line for line in lines if line["event"] == "connections_turned_away"]) <= 1
