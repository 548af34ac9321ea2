"""Queues as operators see them."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient
from page_site import Site

from azq.ledger.types import JobState, JobView
from azq.status.queues import queue_table
from azq.wire.messages import Heartbeat, Job


def worker(name: str, slots: int, *queues: str) -> Heartbeat:
    return Heartbeat("selfplay", name, "h", 1, "0", 1, 0, 0, queues=queues, slots=slots)


def job(kind: str, tag: str, state: JobState, created_ms: int = 0) -> JobView:
    return JobView(Job("r:1", "r", kind, tag), state, 1, "", 0, 0, created_ms, 0, 0, "")


def test_live_queues_and_queues_with_jobs_stand_by_name() -> None:
    workers = (worker("a", 2, "selfplay.cpu", "eval.cpu"), worker("b", 3, "selfplay.cpu"))
    jobs = (
        job("selfplay", "cpu", JobState.LEASED),
        job("selfplay", "cpu", JobState.QUEUED, 7_000),
        job("selfplay", "cpu", JobState.QUEUED, 4_000),
        job("selfplay", "cuda", JobState.QUEUED, 9_500),
    )
    idle, busy, orphan = queue_table(workers, jobs, 10_000)
    assert (idle.queue, idle.queued, idle.leased, idle.slots, idle.workers, idle.oldest_queued_s) == ("eval.cpu", 0, 0, 2, 1, None)
    assert (busy.queue, busy.queued, busy.leased, busy.slots, busy.workers, busy.oldest_queued_s) == ("selfplay.cpu", 2, 1, 5, 2, 6.0)
    assert (orphan.queue, orphan.queued, orphan.slots, orphan.workers, orphan.oldest_queued_s) == ("selfplay.cuda", 1, 0, 0, 0.5)
    assert queue_table((), (), 0) == []


def test_queues_over_rest(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant_workers()
    site.plant_jobs()
    table = {row["queue"]: row for row in TestClient(site.app, base_url="http://127.0.0.1").get("/v1/queues").json()}
    assert {name: (row["queued"], row["leased"], row["slots"]) for name, row in table.items()} == {
        "eval.cpu": (0, 0, 2),
        "selfplay.cpu": (0, 1, 2),
        "selfplay.cuda": (1, 0, 4),
    }
