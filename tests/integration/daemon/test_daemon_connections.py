"""Connections that ask for nothing: a daemon goes on answering and ticking, and shows them out."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from rest_site import RestSite
from waiting import PATIENCE_S, until

from azq.process import webserver
from azq.process.webserver import BODY_S, HEADERS_S

IDLE = 1100
DESCRIPTORS = 1024  # what a process has where nobody sets it


@contextlib.contextmanager
def daemon_of(control_url: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A daemon with the usual number of descriptors, and its address."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 2 * IDLE:
        pytest.skip("this process may not open enough sockets")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AZQ_")}
    settings = {"AZQ_BROKER__CONTROL_URL": control_url, "AZQ_DAEMON__PORT": "0", "AZQ_LOG": "json"}
    root = str(Path(__file__).parents[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "azq", "daemon"],
            cwd=folder,
            env={**inherited, **settings, "PYTHONPATH": root},
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE) if soft >= 0 else soft, hard))
    try:
        assert process.stderr is not None
        lines = (json.loads(line) for line in process.stderr)
        yield process, next(line["url"] for line in lines if line["event"] == "listening")
    finally:
        process.kill()
        process.communicate()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_1100_connections_that_sent_one_byte_stop_neither_answers_nor_ticks(broker: Any, tmp_path: Path) -> None:
    with daemon_of(broker.control_url, tmp_path) as (process, url), contextlib.ExitStack() as idle:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        before = httpx2.get(f"{url}/readyz", timeout=PATIENCE_S).json()
        for _ in range(IDLE):
            one = idle.enter_context(socket.create_connection(place, timeout=PATIENCE_S))
            with contextlib.suppress(ConnectionError):
                one.sendall(b"G")
        seen = httpx2.get(f"{url}/readyz", timeout=PATIENCE_S)
        assert (seen.status_code, seen.json()["failed_ticks"]) == (200, before["failed_ticks"])
        until(lambda: httpx2.get(f"{url}/readyz", timeout=PATIENCE_S).json()["ticks"] >= seen.json()["ticks"] + 5, "five ticks more")
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < DESCRIPTORS - 200
        assert process.poll() is None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A server whose clock can be put forward."""
    ahead = types.SimpleNamespace(s=0.0, url="")
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + ahead.s)
    monkeypatch.setattr(webserver, "time", clock)
    with RestSite(tmp_path, port=0).serving() as ahead.url:
        yield ahead


@pytest.mark.parametrize(
    ("sent", "after_s"),
    [
        (b"", HEADERS_S),
        (b"GET /healthz HTTP/1.1\r\nHost: ", HEADERS_S),
        (b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{", BODY_S),
    ],
)
def test_who_takes_too_long_to_ask_is_shown_out(server: Any, sent: bytes, after_s: float) -> None:
    place = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    with socket.create_connection(place, timeout=PATIENCE_S) as slow:
        slow.sendall(sent)
        httpx2.get(f"{server.url}/healthz")  # by now the bytes were read
        server.s = after_s + 1
        assert slow.recv(1) == b""


def test_nothing_but_http_is_spoken(server: Any) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    assert httpx2.get(f"{server.url}/healthz", headers=upgrade).status_code == 200  # as if nothing had been asked for
