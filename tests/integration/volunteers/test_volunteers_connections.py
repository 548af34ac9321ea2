"""Connections that ask a gateway for nothing: tabs and pages go on, and nobody is written about more than once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.websockets import WebSocket
from structlog.testing import capture_logs
from waiting import until
from websockets.sync.client import ClientConnection, connect

from azq.config import GatewayConfig
from azq.parts.volunteers.main import serving
from azq.parts.volunteers.pages import make_site
from azq.process import webserver as module
from azq.process.webserver import BoundedListener, open_listener

MOST = 32
HALF_OPEN = 300
STRANGER, VISITOR, TAB = "127.0.0.2", "127.0.0.3", "127.0.0.4"


async def echo(tab: WebSocket) -> None:
    """Says from where it sees the tab, then what it hears."""
    await tab.accept()
    assert tab.client is not None
    await tab.send_text(tab.client.host)
    async for frame in tab.iter_bytes():
        await tab.send_bytes(frame)


@pytest.fixture
def listener(request: Any) -> Iterator[BoundedListener]:
    """A gateway's, whose tabs hear what they say."""

    async def nothing() -> None:
        pass

    gateway: Any = SimpleNamespace(talk=echo, follow=nothing, turn=nothing, stop=nothing)
    told: Any = SimpleNamespace(read=None, figures=None, playable=None)
    config = GatewayConfig(port=0, proxies=getattr(request, "param", ()))
    with open_listener(config, "gateway", most=MOST) as listener, serving(make_site(gateway, told, told), listener, config):
        yield listener


def tab(listener: BoundedListener, **headers: str) -> ClientConnection:
    url = f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/volunteers/tab"
    return connect(url, source_address=(TAB, 0), compression=None, proxy=None, additional_headers=headers)


def answer(listener: BoundedListener) -> bytes:
    """What a visitor is answered who asks for the gateway's health."""
    with socket.create_connection(listener.getsockname(), 30, (VISITOR, 0)) as visitor:
        visitor.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return visitor.recv(12)


def test_half_open_connections_of_one_address_harm_nobody(listener: BoundedListener) -> None:
    with capture_logs() as lines, contextlib.ExitStack() as stack:
        mine = stack.enter_context(tab(listener))
        assert mine.recv(30) == TAB
        for number in range(HALF_OPEN):
            one = stack.enter_context(socket.create_connection(listener.getsockname(), 30, (STRANGER, 0)))
            with contextlib.suppress(ConnectionError):
                one.sendall(b"GET / HTTP/1.1\r\nHost: 127.")
            if number % 100 == 0:
                assert answer(listener) == b"HTTP/1.1 200"
        until(
            lambda: sum(each.address == STRANGER for each in tuple(listener.connections.values())) <= MOST // 2,
            "those who were turned away",
        )
        mine.send(b"still here")
        assert mine.recv(30) == b"still here"
        assert answer(listener) == b"HTTP/1.1 200"
        assert len(listener.connections) <= MOST
    assert len([line for line in lines if line["event"] == "connections_turned_away"]) <= 1


@pytest.mark.parametrize(("listener", "seen"), [((), TAB), (("127.0.0.4",), "10.9.8.7"), (("10.0.0.0/8",), TAB)], indirect=["listener"])
def test_who_forwards_is_believed_only_where_he_is_named(listener: BoundedListener, seen: str) -> None:
    with tab(listener, **{"X-Forwarded-For": "10.9.8.7"}) as one:
        assert one.recv(30) == seen


def test_a_tab_may_be_silent_for_as_long_as_it_likes(listener: BoundedListener, monkeypatch: pytest.MonkeyPatch) -> None:
    with tab(listener) as mine:
        assert mine.recv(30) == TAB
        ahead = time.monotonic() + 1e6
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: ahead))
        asyncio.run(listener.sweep())
        mine.send(b"still here")
        assert mine.recv(30) == b"still here"
