"""Flower starts on azq's Celery app, on loopback, and asks for a password."""

from __future__ import annotations

import base64
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from waiting import PATIENCE_S

from azq.host.fronts import free_port

ROOT = Path(__file__).parents[3]


def status_of(port: int, path: str, password: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    headers = {"Authorization": f"Basic {base64.b64encode(password.encode()).decode()}"} if password else {}
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while True:
        try:
            status_of(port, "/healthcheck")
            return
        except OSError:
            assert process.poll() is None, "Flower ended"
            assert time.monotonic() < deadline, "Flower does not answer"
            pause.wait(0.1)


def test_flower_serves_azqs_app_behind_a_password(broker: Any, tmp_path: Path) -> None:
    port = free_port()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AZQ_", "FLOWER_"))}
    settings = {"AZQ_BROKER__CONTROL_URL": broker.control_url, "AZQ_BROKER__DATA_URL": broker.data_url, "FLOWER_BASIC_AUTH": "ops:s3cret"}
    settings["FLOWER_PORT"] = str(port)
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "workers.app",
        "flower",
        f"--conf={ROOT / 'ops/flower/flowerconfig.py'}",
    ]
    with (tmp_path / "flower.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--db={tmp_path / 'flower.db'}"],
            cwd=tmp_path,
            env={**inherited, **settings, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
    try:
        wait_until_it_answers(process, port)
        assert status_of(port, "/workers") == 401
        assert status_of(port, "/api/workers") == 401
        assert status_of(port, "/workers", "ops:wrong") == 401
        assert status_of(port, "/workers", "ops:s3cret") == 200
        assert status_of(port, "/broker", "ops:s3cret") == 200
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert "s3cret" not in (tmp_path / "flower.log").read_text()
