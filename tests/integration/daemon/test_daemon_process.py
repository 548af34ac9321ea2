"""`azq daemon` as systemd sees it: a process, its exit codes, its messages to the notify socket."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import azq_here
from notifications import Notifications
from waiting import PATIENCE_S, until

from azq.bus.embedded import EmbeddedServer
from azq.errors import ExitCode
from azq.wire import keys
from azq.wire.connect import connect


@pytest.fixture
def notifications(tmp_path: Path) -> Iterator[Notifications]:
    place = Notifications(tmp_path / "notify")
    yield place
    place.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `azq daemon` with settings by environment; whatever still runs at the end is killed by its pid."""
    started: list[subprocess.Popen[str]] = []

    def begin(control_url: str, **environment: str) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AZQ_", "NOTIFY_", "WATCHDOG_"))}
        settings = {"AZQ_BROKER__CONTROL_URL": control_url, "AZQ_DAEMON__PORT": "0", "AZQ_LOG": "json"}
        root = str(Path(__file__).parents[3])
        process = subprocess.Popen(
            [sys.executable, "-m", "azq", "daemon"],
            cwd=tmp_path,
            env={**inherited, **settings, "PYTHONPATH": root, **environment},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    """Host and port from the line that says where it listens."""
    assert process.stderr is not None
    for line in process.stderr:
        record = json.loads(line)
        if record["event"] == "listening":
            return str(record["url"]).removeprefix("http://")
    raise AssertionError("the daemon never listened")


def get(address: str, path: str, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_ready_watchdog_stopping_and_a_clean_end(broker: Any, start: Callable[..., Any], notifications: Notifications) -> None:
    process = start(broker.control_url, NOTIFY_SOCKET=str(notifications.path))
    address = address_of(process)
    notifications.wait_for("READY=1")
    notifications.wait_for("WATCHDOG=1", count=3)
    assert get(address, "/readyz")[0] == 200
    client = connect(broker.control_url)
    holder: Any = client.get(keys.DAEMON)
    assert holder.decode().split(":")[1] == str(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == ExitCode.OK
    notifications.wait_for("STOPPING=1")
    lines = notifications.lines
    assert lines.index("READY=1") < lines.index("STOPPING=1")
    assert "WATCHDOG=1" not in lines[lines.index("STOPPING=1") :]
    assert client.get(keys.DAEMON) is None
    assert list(client.scan_iter(f"{keys.BEAT_PREFIX}*")) == []
    client.close()


def test_a_frozen_broker_degrades_readiness_until_it_thaws_and_the_daemon_lives_meanwhile(
    broker: Any, start: Callable[..., Any], notifications: Notifications
) -> None:
    process = start(broker.control_url, NOTIFY_SOCKET=str(notifications.path))
    address = address_of(process)
    notifications.wait_for("READY=1")
    os.kill(broker.control.pid, signal.SIGSTOP)
    try:
        until(lambda: get(address, "/readyz")[0] == 503, "a daemon that is not ready")
        notifications.wait_for("STATUS=degraded")
        notifications.wait_for("WATCHDOG=1", count=notifications.lines.count("WATCHDOG=1") + 3)
    finally:
        os.kill(broker.control.pid, signal.SIGCONT)
    notifications.wait_for("STATUS=reconciling", count=notifications.lines.count("STATUS=reconciling") + 2)
    assert get(address, "/readyz")[0] == 200
    assert process.poll() is None


def test_rest_is_there_before_the_broker_and_says_why_nothing_runs(
    start: Callable[..., Any], notifications: Notifications, tmp_path: Path
) -> None:
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    server.stop()
    process = start(server.url, NOTIFY_SOCKET=str(notifications.path), AZQ_DAEMON__TOKEN="s3cret-s3cret")
    address = address_of(process)
    notifications.wait_for("READY=1")
    notifications.wait_for("WATCHDOG=1", count=3)
    for path in ("/readyz", "/v1/runs", "/v1/workers"):
        status, problem = get(address, path, Authorization="Bearer s3cret-s3cret")
        assert (status, "no broker at unix://" in problem["detail"]) == (503, True)
    assert get(address, "/healthz")[0] == 200
    server.start()
    try:
        notifications.wait_for("STATUS=reconciling")
        assert get(address, "/readyz")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == ExitCode.OK
    finally:
        server.stop()


def test_what_forbids_a_start_is_one_line_and_a_documented_exit_code(broker: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, everywhere, token = str(taken.getsockname()[1]), {"AZQ_DAEMON__HOST": "0.0.0.0"}, {"AZQ_DAEMON__TOKEN": "s3cret-s3cret"}
        wrong = broker.control_url.replace("://:", "://:wrong", 1)
        cases: list[tuple[str, dict[str, str], ExitCode, str]] = [
            (broker.control_url, {"AZQ_DAEMON__PORT": port}, ExitCode.CONFIG, f"127.0.0.1:{port} is in use"),
            (broker.control_url, everywhere, ExitCode.CONFIG, "daemon.token"),
            (broker.control_url, everywhere | token, ExitCode.CONFIG, "daemon.plaintext"),
            ("", {}, ExitCode.CONFIG, "broker.control_url"),
            (wrong, {}, ExitCode.BROKER_REFUSED, "password"),
            (broker.control_url, {}, ExitCode.CONFLICT, "another daemon (pid 17 on elsewhere)"),
        ]
        with connect(broker.control_url) as client:
            client.set(keys.DAEMON, "elsewhere:17:1:another-boot/1")
        for url, settings, code, words in cases:
            done = azq_here(tmp_path, "daemon", **{"AZQ_BROKER__CONTROL_URL": url, "AZQ_DAEMON__PORT": "0", **settings})
            assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
            assert words in done.stderr


def test_a_daemon_that_was_given_no_token_has_its_own_which_azq_finds(broker: Any, start: Callable[..., Any], tmp_path: Path) -> None:
    process = start(broker.control_url)
    address = address_of(process)
    assert get(address, "/v1/runs")[0] == 401
    assert "version" not in get(address, "/readyz")[1]
    token = (tmp_path / "runs" / ".token").read_text().strip()
    assert get(address, "/v1/runs", Authorization=f"Bearer {token}") == (200, [])
    own = {name: value for name, value in os.environ.items() if not name.startswith("AZQ_")}
    command = [sys.executable, "-m", "azq", "runs", "list", "--json"]
    paths = {"PYTHONPATH": str(Path(__file__).parents[3]), "AZQ_DAEMON__PORT": address.rpartition(":")[2]}
    here = subprocess.run(command, cwd=tmp_path, env={**own, **paths}, capture_output=True, text=True, check=True)
    assert json.loads(here.stdout) == []
    elsewhere = subprocess.run(command, cwd="/", env={**own, **paths}, capture_output=True, text=True, check=False)
    assert (elsewhere.returncode, "AZQ_HOME" in elsewhere.stderr) == (ExitCode.REQUEST, True)
    process.send_signal(signal.SIGTERM)
    assert token not in process.communicate(timeout=PATIENCE_S)[1]


def test_a_token_file_that_others_may_read_stops_a_daemon_with_one_line(broker: Any, tmp_path: Path) -> None:
    (tmp_path / ".token").write_text("known-to-everybody-here\n")
    (tmp_path / ".token").chmod(0o644)
    done = azq_here(tmp_path, "daemon", AZQ_BROKER__CONTROL_URL=broker.control_url, AZQ_DAEMON__PORT="0")
    assert (done.returncode, len(done.stderr.splitlines()), "open to other users" in done.stderr) == (ExitCode.CONFIG, 1, True)
    assert "known-to" not in done.stderr
