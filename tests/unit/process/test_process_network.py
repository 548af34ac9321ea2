"""The ways to other machines: HTTP by the proxy of the environment or past it, the interface and the address towards a host."""

from __future__ import annotations

import http.server
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from azq.client import Client
from azq.config.access import is_this_host
from azq.errors import AzqError, ConfigError, DaemonUnavailable
from azq.process.network import address_towards, interface_towards, open_web, way_to

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Proxy(http.server.BaseHTTPRequestHandler):
    """Refuses what it is asked for, and notes it."""

    heard: list[str]

    def do_GET(self) -> None:
        self.heard.append(self.path)
        self.send_error(403)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.HTTPServer]:
    handler = type("Noting", (Proxy,), {"heard": []})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for name in ("HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://me:secret@127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()


def own_names() -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            routed = [probe.getsockname()[0]]
        except OSError:  # this machine has loopback alone
            routed = []
    return ["127.0.0.1", "127.3.4.5", "localhost", "::1", socket.gethostname(), *routed]


@pytest.mark.parametrize("host", own_names())
def test_no_request_to_this_host_goes_to_a_proxy(host: str, proxy: http.server.HTTPServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    with Client(url, "operate-token", sleep=lambda _: None) as client, pytest.raises(DaemonUnavailable, match="start `azq daemon`"):
        client.run("r")
    assert (proxy.RequestHandlerClass.heard, way_to(url)) == ([], "")  # type: ignore[attr-defined]


def test_elsewhere_the_proxy_is_used_and_named_without_its_password(proxy: http.server.HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url, named = "http://daemon.example:8080", rf" through the proxy http://\*\*\*@127.0.0.1:{proxy.server_port} \(HTTP_PROXY\)"
    with Client(url) as client, pytest.raises(AzqError, match=f"GET /v1/runs/r{named} was answered with status 403"):
        client.run("r")
    assert proxy.RequestHandlerClass.heard == [f"{url}/v1/runs/r"]  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gone = taken.getsockname()[1]
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{gone}")
    with Client(url, sleep=lambda _: None) as client, pytest.raises(DaemonUnavailable, match=r"\(HTTP_PROXY\).*NO_PROXY"):
        client.run("r")
    monkeypatch.setenv("NO_PROXY", "daemon.example")
    assert way_to(url) == ""


@pytest.mark.parametrize(
    ("variable", "value"), [("HTTP_PROXY", "wais://x"), ("ALL_PROXY", "socks5://127.0.0.1:1"), ("SSL_CERT_FILE", "/nowhere/ca.pem")]
)
def test_what_the_environment_names_and_cannot_be_used_is_said_elsewhere_and_harms_nobody_here(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    open_web("http://127.0.0.1:8080", timeout_s=1.0).close()
    with pytest.raises(ConfigError, match=r"HTTP_PROXY, .*SSL_CERT_FILE cannot be used"):
        open_web("https://daemon.example" if variable == "SSL_CERT_FILE" else "http://daemon.example", timeout_s=1.0)


def test_there_is_one_door() -> None:
    client = re.compile(r"(httpx2\.((Async)?Client|get|post|put|stream|request)|urlopen)\((?!.*trust_env=False)")
    root = Path(__file__).parents[3]
    files = [file for package in ("azq", "daemon", "workers") for file in (root / package).rglob("*.py")]
    assert [file.name for file in files if client.search(file.read_text("utf-8"))] == ["network.py"]


def test_other_machines_are_not_this_one() -> None:
    assert not any(map(is_this_host, ("192.0.2.1", "2001:db8::1", "elsewhere.example", "")))


@pytest.mark.skipif(not os.path.exists("/sys/class/net/lo"), reason="has no such interface")
def test_this_machine_reaches_itself_by_loopback():
    assert (address_towards("127.0.0.1"), interface_towards("127.0.0.1")) == ("127.0.0.1", "lo")


def test_a_name_that_leads_nowhere_has_neither():
    assert (address_towards("no-such-host.invalid"), interface_towards("no-such-host.invalid")) == ("", "")
