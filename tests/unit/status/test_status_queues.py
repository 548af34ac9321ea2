"""Queues as operators and the daemon see them: slots, tags and busyness of the live workers, what waits and what runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from page_site import Site

from azq.ledger.types import JobState, JobView
from azq.status.queues import condense, eval_tag, is_full, live_tags, note_full, queue_table, slots_of, tags_of
from azq.status.state import Offer
from azq.wire.kinds import Kind, queue_name
from azq.wire.messages import Heartbeat, Job


def beat(name: str, *queues: str, slots: int = 1) -> Heartbeat:
    return Heartbeat("selfplay", name, "h", 1, "0", 1, 0, 0, queues=queues, slots=slots)


def leased(queue: str, count: int) -> list[JobView]:
    kind, tag = queue.split(".")
    job = Job(job_id="r:1", run="r", kind=Kind(kind), tag=tag)
    return [JobView(job, JobState.LEASED, 1, "w", 0, 0, 0, 0, 0, "")] * count


@given(st.sampled_from(Kind), st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True))
def test_the_tags_of_a_kind_are_those_of_its_queues(kind: Kind, tag: str) -> None:
    assert {other: live_tags([beat("a", queue_name(kind, tag))], other) for other in Kind} == {**dict.fromkeys(Kind, ()), kind: (tag,)}


def test_slots_and_tags_come_from_live_workers() -> None:
    workers = [beat("a", "selfplay.cpu", "eval.cpu", slots=2), beat("b", "selfplay.cpu"), beat("c", "eval.jarvis")]
    assert slots_of(workers, "selfplay.cpu") == 3
    assert slots_of(workers, "selfplay.cuda") == 0
    assert live_tags(workers, "eval") == ("cpu", "jarvis")
    assert live_tags(workers, "selfplay") == ("cpu",)


def test_evaluation_prefers_the_runs_tag_then_cpu_then_any() -> None:
    workers = [beat("a", "eval.cpu"), beat("b", "eval.zeus"), beat("c", "eval.ares")]
    assert eval_tag(workers, "zeus") == "zeus"
    assert eval_tag(workers, "cuda") == "cpu"
    assert eval_tag(workers[1:], "cuda") == "ares"
    assert eval_tag([], "cuda") == "cuda"
    assert eval_tag([beat("d", "eval.browser")], "cpu") == "cpu", "tabs play some matches only"


def test_a_worker_busy_with_another_queue_counts_as_busy() -> None:
    both = beat("a", "selfplay.cpu", "eval.cpu")
    assert is_full([both], leased("selfplay.cpu", 1), "eval.cpu")
    assert not is_full([both, beat("b", "eval.cpu")], leased("selfplay.cpu", 1), "eval.cpu")
    helper = beat("c", "selfplay.cpu", slots=2)
    assert not is_full([both, helper], leased("selfplay.cpu", 2), "eval.cpu")
    assert is_full([both, helper], leased("selfplay.cpu", 3), "eval.cpu")


def test_only_jobs_beyond_the_slots_of_their_own_queue_keep_a_shared_worker_busy() -> None:
    both, helper = beat("a", "selfplay.cpu", "eval.cpu"), beat("c", "selfplay.cpu", slots=2)
    assert is_full([both, helper], [*leased("eval.cpu", 1), *leased("selfplay.cpu", 1)], "eval.cpu")
    assert not is_full([both, helper], leased("selfplay.cpu", 1), "eval.cpu")
    assert is_full([both], leased("eval.cpu", 2), "eval.cpu")
    assert not is_full([both], leased("eval.cuda", 1), "eval.cpu")


def test_tags_of_a_process_are_those_it_names_and_those_of_its_queues() -> None:
    assert tags_of(beat("a", "selfplay.cpu", "eval.jarvis")) == {"cpu", "jarvis"}
    assert tags_of(msgspec.structs.replace(beat("a", "selfplay.cpu"), tags=("cuda",))) == {"cpu", "cuda"}


def test_queued_jobs_keep_nobody_busy() -> None:
    waiting = [dataclasses.replace(view, state=JobState.QUEUED) for view in leased("eval.cpu", 5)]
    assert not is_full([beat("a", "eval.cpu")], waiting, "eval.cpu")


def test_the_last_full_moment_is_remembered_until_the_queue_goes_away() -> None:
    workers = [beat("a", "eval.cpu")]
    seen = note_full({}, workers, [], 100)
    assert seen == {"eval.cpu": 100}
    seen = note_full(seen, workers, [], 200)
    assert seen == {"eval.cpu": 100}
    seen = note_full(seen, workers, leased("eval.cpu", 1), 300)
    assert note_full(seen, workers, [], 400) == {"eval.cpu": 300}
    assert note_full(seen, [], [], 500) == {}


def test_what_a_fleet_offers_is_one_value_for_each_kind_of_worker() -> None:
    workers = [beat(f"w{index}", "selfplay.cpu", slots=2) for index in range(500)] + [beat("gpu", "selfplay.cuda"), beat("idle")]
    assert condense(workers) == (Offer(("selfplay.cpu",), 1000), Offer(("selfplay.cuda",), 1))


def worker(name: str, slots: int, *queues: str) -> Heartbeat:
    return Heartbeat("selfplay", name, "h", 1, "0", 1, 0, 0, queues=queues, slots=slots)


def job(kind: Kind, tag: str, state: JobState, created_ms: int = 0) -> JobView:
    return JobView(Job("r:1", "r", kind, tag), state, 1, "", 0, 0, created_ms, 0, 0, "")


def test_live_queues_and_queues_with_jobs_stand_by_name() -> None:
    workers = (worker("a", 2, "selfplay.cpu", "eval.cpu"), worker("b", 3, "selfplay.cpu"))
    jobs = (
        job(Kind.SELFPLAY, "cpu", JobState.LEASED),
        job(Kind.SELFPLAY, "cpu", JobState.QUEUED, 7_000),
        job(Kind.SELFPLAY, "cpu", JobState.QUEUED, 4_000),
        job(Kind.SELFPLAY, "cuda", JobState.QUEUED, 9_500),
    )
    idle, busy, orphan = queue_table(workers, jobs, 10_000)
    assert (idle.queue, idle.queued, idle.leased, idle.slots, idle.workers, idle.oldest_queued_s) == ("eval.cpu", 0, 0, 2, 1, None)
    assert (busy.queue, busy.queued, busy.leased, busy.slots, busy.workers, busy.oldest_queued_s) == ("selfplay.cpu", 2, 1, 5, 2, 6.0)
    assert (orphan.queue, orphan.queued, orphan.slots, orphan.workers, orphan.oldest_queued_s) == ("selfplay.cuda", 1, 0, 0, 0.5)
    assert queue_table((), (), 0) == []


def test_a_job_of_a_host_whose_clock_is_ahead_has_waited_for_no_time() -> None:
    [ahead] = queue_table((), (job(Kind.SELFPLAY, "cpu", JobState.QUEUED, 10_400),), 10_000)
    assert ahead.oldest_queued_s == 0.0


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
