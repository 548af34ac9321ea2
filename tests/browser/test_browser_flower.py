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
from urllib.parse import unquote

import pytest
from browsing import launched, shot
from waiting import PATIENCE_S, until
from worker_doubles import RUN, Fleet

from azq.config.host import with_user
from azq.ledger.types import JobState
from azq.wire import acl
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchSpec

ROOT = Path(__file__).parents[2]
PASSWORD = "s3cret-of-ops"


@contextlib.contextmanager
def flower(broker: Any, folder: Path, port: int) -> Iterator[None]:
    """Flower with a password, on this port, as the unit starts it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AZQ_", "FLOWER_"))}
    own_url = with_user(broker.control_url, acl.role_user("flower"), acl.role_password(broker.control.password, "flower"))
    settings = {"AZQ_BROKER__CONTROL_URL": own_url, "AZQ_BROKER__DATA_URL": broker.data_url}
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
        process.wait(PATIENCE_S)
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
        refused = until(lambda: answered(stranger, f"{url}/workers"), "answer of Flower")
        assert (refused.status, refused.text()) == (401, "Access denied")
        with pytest.raises(playwright_error(), match="INVALID_AUTH"):
            stranger.new_page().goto(f"{url}/workers")
        context = browser.new_context(viewport={"width": 1400, "height": 800}, http_credentials={"username": "ops", "password": PASSWORD})
        page = context.new_page()
        fleet.create_run()
        fleet.start()
        until(fleet.beats, "heartbeat")
        fleet.send(slice_s=0.5)
        until(lambda: fleet.finished() > 0, "finished game")
        until(lambda: worker_of(page, url), "worker on Flower's page")
        shot(page, "flower-workers")
        assert "Online" in page.content()
        until(lambda: task_of(page, url), "task on Flower's page")
        shot(page, "flower-tasks")
        assert f"{RUN}:1" in page.locator("#tasks-table tbody").inner_text()


@pytest.mark.slow
def test_every_link_of_every_page_leads_somewhere_and_says_how_it_is(broker: Any, fleet: Fleet, tmp_path: Path, free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    with launched() as browser, flower(broker, tmp_path, free_port):
        context = browser.new_context(http_credentials={"username": "ops", "password": PASSWORD})
        page = context.new_page()
        until(lambda: answered(context, f"{url}/healthcheck"), "answer of Flower")
        fleet.create_run()
        fleet.start("selfplay.cpu,eval.cpu,selfplay.jarvis")
        until(lambda: worker_of(page, url), "worker on Flower's page")
        failed = fleet.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu", payload=encode(MatchSpec("random", "gtp:no-such", 2, 8, 0, 3))))
        fleet.publish(failed)
        lost = fleet.send(slice_s=300.0)
        os.kill(fleet.playing(), signal.SIGKILL)
        until(lambda: fleet.ledger.job(lost.job.job_id).attempt == 2, "end of the lease")
        running = fleet.send(slice_s=300.0)
        until(lambda: fleet.ledger.job(running.job.job_id).state is JobState.LEASED, "next job")
        jobs = {failed: "FAILURE", lost: "FAILURE", running: "STARTED"}
        states = {f"{view.job.job_id}:1": state for view, state in jobs.items()}
        for task, state in states.items():
            until(lambda task=task, state=state: says(page, url, task, state), f"{task} as {state}")
        seen = crawled(page, url)
        assert [f"{url}/worker/" in link for link in seen].count(True) == 1
        assert {f"{url}/task/{task}" for task in states} <= {unquote(link) for link in seen}
        broker_page = next(text for link, text in seen.items() if link.endswith("/broker"))
        assert {"selfplay.cpu", "eval.cpu", "selfplay.jarvis"} <= set(broker_page.split())
        one = next(text for link, text in seen.items() if unquote(link).endswith(f"{running.job.job_id}:1"))
        assert f"{running.job.job_id} attempt 1 · selfplay.cpu · 16 games" in one
        assert "worker.engines" in next(text for link, text in seen.items() if unquote(link).endswith(f"{failed.job.job_id}:1"))
    assert broker.control.password not in "".join(seen.values())
    assert "Traceback" not in (tmp_path / "flower.log").read_text()


def says(page: Any, url: str, task: str, state: str) -> bool:
    """Whether a task's page says this state."""
    return bool(page.goto(f"{url}/task/{task}").status == 200 and state in page.inner_text("body").split())


def crawled(page: Any, url: str) -> dict[str, str]:
    """The text of every page that links of Flower's own lead to, each once; a link to nowhere fails."""
    seen: dict[str, str] = {}
    left = [f"{url}/"]
    while left:
        if (link := left.pop()) in seen:
            continue
        answer = page.goto(link)
        assert answer.status < 400, (link, answer.status, page.inner_text("body"))
        page.wait_for_load_state("networkidle")
        seen[link] = page.inner_text("body")
        found = page.eval_on_selector_all("a[href]", "all => all.map(one => one.href.split('#')[0])")
        left += [one for one in found if one.startswith(url) and "logout" not in one]
        assert len(seen) < 60, sorted(seen)
    return seen


def worker_of(page: Any, url: str) -> bool:
    """Whether Flower's page names a worker."""
    page.goto(f"{url}/workers")
    return bool(page.locator("#workers-table tbody a").count())


def task_of(page: Any, url: str) -> bool:
    """Whether Flower's page has a row for the self-play task."""
    page.goto(f"{url}/tasks")
    page.wait_for_timeout(200)
    return "selfplay" in page.locator("#tasks-table tbody").inner_text()
