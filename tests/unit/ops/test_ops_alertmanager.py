"""Alerts reach people: Alertmanager with the routes as they are, a webhook and a mail host that note what they get."""

from __future__ import annotations

import json
import shutil
import socketserver
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE_S, until

from azq.host.fronts import free_port

ROUTES = Path(__file__).parents[3] / "ops" / "prometheus" / "alertmanager.yml"
SERVER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
pytestmark = pytest.mark.skipif(SERVER is None, reason="Alertmanager (Debian: prometheus-alertmanager) is not installed")

heard: list[dict[str, Any]] = []  # alerts that the webhook got
mails: list[str] = []


class Webhook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        heard.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class MailHost(socketserver.StreamRequestHandler):
    """As much of SMTP (RFC 5321) as takes a mail."""

    def handle(self) -> None:
        self.wfile.write(b"220 double\r\n")
        for line in self.rfile:
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                mails.append(b"".join(takewhile(b".\r\n".__ne__, self.rfile)).decode())  # or until whoever sends is killed
            self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 ok\r\n")


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[int]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1])  # type: ignore[index]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[str]:
    """Where an Alertmanager with the project's routes answers, which waits for nothing."""
    heard.clear()
    mails.clear()
    port = free_port(1)
    with (
        serving(HTTPServer(("127.0.0.1", 0), Webhook)) as webhook,
        serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), MailHost)) as mail,
    ):
        text = ROUTES.read_text("utf-8").replace("127.0.0.1:9095", f"127.0.0.1:{webhook}").replace("localhost:25", f"127.0.0.1:{mail}")
        text = text.replace("group_wait: 30s", "group_wait: 0s").replace("group_wait: 5s", "group_wait: 0s")
        text = text.replace("smtp_from:", "smtp_require_tls: false\n  smtp_from:")
        (tmp_path / "routes.yml").write_text(text)
        options = ["--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{port}", f"--storage.path={tmp_path}"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([str(SERVER), f"--config.file={tmp_path / 'routes.yml'}", *options], stdout=log, stderr=log)
        try:
            until(lambda: ask(f"http://127.0.0.1:{port}/-/ready"), "an Alertmanager")
            yield f"http://127.0.0.1:{port}/api/v2/alerts"
        finally:
            process.kill()
            process.wait()


def ask(url: str, alerts: list[dict[str, Any]] | None = None) -> bool:
    request = urllib.request.Request(url, json.dumps(alerts).encode() if alerts else None, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def alert(name: str, severity: str, **labels: str) -> dict[str, Any]:
    return {"labels": {"alertname": name, "severity": severity, **labels}, "annotations": {"summary": f"{name} fires"}}


def test_what_is_critical_is_mailed_and_holds_back_the_warnings_that_follow_from_it(manager: str) -> None:
    assert ask(manager, [alert("AzqPolicyLagHigh", "warning", run="first")])
    until(lambda: heard, "the webhook's first alert")
    assert [each["labels"]["alertname"] for each in heard] == ["AzqPolicyLagHigh"]
    assert mails == []
    assert ask(manager, [alert("AzqBrokerDown", "critical", plane="data")])
    until(lambda: mails and len(heard) > 1, "a mail, and the webhook's second alert")
    assert "AzqBrokerDown fires" in mails[0]
    assert ask(manager, [alert("AzqNoGames", "warning", run="first"), alert("AzqRunFailed", "critical", run="first")])
    until(lambda: len(heard) > 2, "the webhook's third alert")
    assert [each["labels"]["alertname"] for each in heard] == ["AzqPolicyLagHigh", "AzqBrokerDown", "AzqRunFailed"]
    with urllib.request.urlopen(manager, timeout=PATIENCE_S) as answer:
        states = {each["labels"]["alertname"]: each["status"]["state"] for each in json.load(answer)}
    assert states == {"AzqPolicyLagHigh": "suppressed", "AzqNoGames": "suppressed", "AzqBrokerDown": "active", "AzqRunFailed": "active"}
