"""Flower's own pages over azq's Celery app, as a browser renders them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from flower_site import PASSWORD, USER, flower
from waiting import until
from worker_doubles import RUN, Fleet

from azq.config.host import with_user
from azq.ledger.types import JobState
from azq.wire import acl
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchSpec


@pytest.fixture
def fleet(broker: Any, tmp_path: Path) -> Iterator[Fleet]:
    one = Fleet(broker, tmp_path)
    yield one
    one.close()


def answered(context: Any, url: str) -> Any:
    """What a page answers, or None while nobody listens there."""
    from playwright.sync_api import Error  # the browser may be absent

    with contextlib.suppress(Error):
        return context.request.get(url)
    return None


@pytest.mark.slow
def test_every_link_of_every_page_leads_somewhere_and_says_how_it_is(browser: Any, broker: Any, fleet: Fleet, tmp_path: Path) -> None:
    own_url = with_user(broker.control_url, acl.role_user("flower"), acl.role_password(broker.control.password, "flower"))
    with flower(own_url, tmp_path) as url:
        context = browser.new_context(http_credentials={"username": USER, "password": PASSWORD})
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
