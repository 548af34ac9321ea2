"""Bytes through a relay: all of them, in order, no earlier than a way takes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from azq.config import Config, load
from azq.errors import ConfigError
from azq.parts.lab.bench.fleet import AGAIN_S, bench_fleet, in_flight, over_a_network
from azq.parts.lab.bench.rig import changed

MEGABYTE = bytes(range(256)) * 4096


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Config]:
    """Settings whose brokers are one server that says everything back."""
    path = tmp_path / "echo.sock"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()

        def serve() -> None:
            while True:
                try:
                    called, _ = door.accept()
                except OSError:
                    return
                threading.Thread(target=repeat, args=(called,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        urls = {"control_url": f"unix://user:secret@{path}", "data_url": "", "data_urls": (f"unix://:other@{path}",)}
        yield changed(load(), broker=urls)


def repeat(called: socket.socket) -> None:
    with called, contextlib.suppress(OSError):
        while said := called.recv(1 << 16):
            called.sendall(said)


def asked(url: str, text: bytes) -> tuple[bytes, float]:
    """What comes back of a text through a new connection, and after how many seconds."""
    parts = urlsplit(url)
    assert parts.port
    with socket.create_connection(("127.0.0.1", parts.port), timeout=60) as client:
        begun_s = time.monotonic()
        sender = threading.Thread(target=client.sendall, args=(text,))
        sender.start()
        back = b""
        while len(back) < len(text):
            back += client.recv(1 << 16)
        sender.join()
        return back, time.monotonic() - begun_s


def test_every_byte_comes_in_order_and_no_earlier_than_a_round_trip(echo: Config) -> None:
    with over_a_network(echo, 40.0, 0.0) as far:
        assert far.broker.control_url.startswith("redis://user:secret@127.0.0.1:")
        assert far.broker.data_planes[0].startswith("redis://:other@127.0.0.1:")
        for url in (far.broker.control_url, *far.broker.data_planes):
            back, took_s = asked(url, b"?")
            assert (back, took_s >= 0.04) == (b"?", True)
            assert asked(url, MEGABYTE)[0] == MEGABYTE


def test_a_lost_packet_comes_when_it_is_sent_again(echo: Config) -> None:
    with over_a_network(echo, 0.0, 0.99) as far:
        back, took_s = asked(far.broker.control_url, MEGABYTE)
    assert back == MEGABYTE
    assert took_s >= AGAIN_S


@pytest.mark.parametrize(
    ("clock_s", "way_s", "turn_s", "needed"), [(0.02, 0.0, 0.0, 1), (0.02, 0.02, 0.002, 3), (0.002, 0.02, 0.002, 12), (0.02, -1.0, 0.0, 1)]
)
def test_requests_that_keep_a_device_busy(clock_s: float, way_s: float, turn_s: float, needed: int) -> None:
    assert in_flight(clock_s, way_s, turn_s) == needed


@pytest.mark.parametrize(("rtt", "loss"), [((1.0, -1.0), 0.0), ((1.0,), 1.0)])
def test_no_time_and_no_share(rtt: tuple[float, ...], loss: float) -> None:
    with pytest.raises(ConfigError, match=r"--loss .* --rtt"):
        bench_fleet(load(), seconds=1.0, game="connect_four", network_clock="20ms", rtt=rtt, loss=loss)
