"""Flower's own pages over azq's Celery app, as a browser renders them: nothing without the password, a worker and its task with it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import launched, shot
from waiting import until
from worker_doubles import RUN, Fleet

ROOT = Path(__file__).parents[2]
PASSWORD = "s3cret-of-ops"


@contextlib.contextmanager
def flower(broker: Any, folder: Path, port: int) -> Iterator[None]:
    """Flower with a password, on this port, as the unit starts it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AZQ_", "FLOWER_"))}
    settings = {"AZQ_BROKER__CONTROL_URL": broker.control_url, "AZQ_BROKER__DATA_URL": broker.data_url}
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "flower", f"--conf={ROOT / 'ops/flower/flowerconfig.py'}"]
    with (folder / "flower.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--port={port}", f"--db={folder / 'flower.db'}"],
            cwd=folder,
            env={**inherited, **settings, "FLOWER_BASIC_AUTH": f"ops:{PASSWORD}", "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        process.wait(15)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def fleet(broker: Any, tmp_path: Path) -> Iterator[Fleet]:
    one = Fleet(broker, tmp_path)
    yield one
    one.close()


def answered(context: Any, url: str) -> Any:
    """What a page answers, or None while nobody listens there."""
    with contextlib.suppress(playwright_error()):
        return context.request.get(url)
    return None


def playwright_error() -> type[Exception]:
    """The browser's complaints; imported late, as the browser may be absent."""
    from playwright.sync_api import Error

    return Error


def test_flower_shows_a_worker_and_its_task_only_with_the_password(broker: Any, fleet: Fleet, tmp_path: Path, free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    with launched() as browser, flower(broker, tmp_path, free_port):
        stranger = browser.new_context()
        refused = until(lambda: answered(stranger, f"{url}/workers"), "answer of Flower", 60)
        assert (refused.status, refused.text()) == (401, "Access denied")
        with pytest.raises(playwright_error(), match="INVALID_AUTH"):
            stranger.new_page().goto(f"{url}/workers")
        context = browser.new_context(viewport={"width": 1400, "height": 800}, http_credentials={"username": "ops", "password": PASSWORD})
        page = context.new_page()
        fleet.create_run()
        fleet.start()
        until(fleet.beats, "heartbeat", 60)
        fleet.send(slice_s=0.5)
        until(lambda: fleet.finished() > 0, "finished game", 60)
        until(lambda: worker_of(page, url), "worker on Flower's page", 60)
        shot(page, "flower-workers")
        assert "Online" in page.content()
        until(lambda: task_of(page, url), "task on Flower's page", 60)
        shot(page, "flower-tasks")
        assert f"{RUN}:1" in page.locator("#tasks-table tbody").inner_text()


def worker_of(page: Any, url: str) -> bool:
    """Whether Flower's page names a worker."""
    page.goto(f"{url}/workers")
    return bool(page.locator("#workers-table tbody a").count())


def task_of(page: Any, url: str) -> bool:
    """Whether Flower's page has a row for the self-play task."""
    page.goto(f"{url}/tasks")
    page.wait_for_timeout(200)
    return "selfplay" in page.locator("#tasks-table tbody").inner_text()
