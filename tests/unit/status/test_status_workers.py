"""Live workers of a run, and the queues that they take."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import heartbeat
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from page_site import Site

from azq.ledger.types import JobState, JobView
from azq.status.state import Offer
from azq.status.workers import (
    NetworkUse,
    WorkerStatus,
    condense,
    eval_tag,
    is_full,
    joined,
    lag_of,
    live_tags,
    network_uses,
    note_full,
    queue_table,
    slots_of,
    tags_of,
    team_of,
    worker_status,
)
from azq.wire.kinds import Kind, queue_name
from azq.wire.messages import Heartbeat, Job


def beat(role: str, versions: dict[str, int] | None = None, *, worker: str = "w", **facts: Any) -> Heartbeat:
    return heartbeat(role, worker, pid=7, version="1.2", started_ms=1_000, sent_ms=4_000, weight_versions=versions or {}, **facts)


def test_a_heartbeat_as_operators_read_it() -> None:
    sent = Heartbeat("eval", "w", "h", 7, "1.2", 1, 1_000, 4_000, "r", ("eval.cpu",), ("cpu",), 3, {"games_per_s": 2.0}, {"r": 9})
    assert worker_status(sent, 5_500) == WorkerStatus(
        "w", "eval", "h", 7, "1.2", "r", ("eval.cpu",), ("cpu",), 3, 1.5, 3.0, {"games_per_s": 2.0}, {"r": 9}
    )


def test_a_clock_that_is_behind_makes_no_time_negative() -> None:
    behind = heartbeat("eval", started_ms=4_000, sent_ms=1_000)
    status = worker_status(behind, 500)
    assert (status.age_s, status.up_s) == (0.0, 0.0)


def test_what_inference_workers_do_is_told_by_run() -> None:
    assert network_uses([beat("selfplay", {"r": 1}), beat("inference", {"r": 1}), beat("inference")]) == {}
    serving = [
        beat("inference", {"r": 1, "idle": 1}, by_run={"r": (30.0, 10.0, 0.5), "s": (7.0, 7.0, 0.25)}),
        beat("inference", {"r": 1}, by_run={"r": (90.0, 90.0, 0.0)}),
        beat("inference", {"r": 1}),
        beat("inference", {"idle": 1}),
    ]
    # Four passes a second; a mean over the three that serve it.
    assert network_uses(serving) == {"r": NetworkUse(30.0, 0.5 / 3), "s": NetworkUse(7.0, 0.25)}


@pytest.mark.parametrize(
    ("workers", "lag"),
    [
        ([], 0.0),
        ([beat("selfplay", {"r": 7}), beat("selfplay", {"r": 10}), beat("selfplay", {"s": 1})], 1.5),
        ([beat("selfplay", {"r": 12})], 0.0),  # newer than what the reader knows
        ([beat("selfplay", {"s": 1})], 0.0),
        ([beat("inference", {"r": 1})], 0.0),
        ([beat("selfplay", {"r": 0})], 0.0),
        ([beat("selfplay", {"r": 7}), beat("selfplay", {"r": 0})], 3.0),
    ],
    ids=["nobody", "by versions", "ahead", "of another run", "none that plays", "begins", "one begins"],
)
def test_a_lag_is_what_the_versions_of_workers_tell(workers: list[Heartbeat], lag: float) -> None:
    assert lag_of(workers)("r", 10) == lag


LEARNER, PLAYER = beat("learner", run="r", worker="l"), beat("selfplay", {"r": 10}, run="r", worker="p")
SERVER = beat("inference", {"r": 10}, run="r", worker="i", by_run={"r": (8.0, 4.0, 1.0)})


@pytest.mark.parametrize("own", [[], [LEARNER], [PLAYER], [LEARNER, PLAYER, SERVER]])
@pytest.mark.parametrize("shared", [[], [beat("selfplay", {"r": 8}, worker="a")]])
def test_joining_a_team_is_as_putting_all_of_it_together(shared: list[Heartbeat], own: list[Heartbeat]) -> None:
    status = partial(worker_status, now_ms=5_000)
    one, other = joined(team_of(shared, status), own, status), team_of([*shared, *own], status)
    assert (one.beats, one.workers, one.networks, one.lag("r", 10)) == (other.beats, other.workers, other.networks, other.lag("r", 10))
    assert json.loads(bytes(one.encoded)) == json.loads(bytes(other.encoded))


def offering(name: str, *queues: str, slots: int = 1) -> Heartbeat:
    return heartbeat("selfplay", name, queues=queues, slots=slots)


def job(queue: str, state: JobState, created_ms: int = 0) -> JobView:
    kind, tag = queue.split(".")
    return JobView(Job("r:1", "r", Kind(kind), tag), state, 1, "", 0, 0, created_ms, 0, 0, "")


def leased(queue: str, count: int) -> list[JobView]:
    return [job(queue, JobState.LEASED)] * count


@given(st.sampled_from(Kind), st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True))
def test_the_tags_of_a_kind_are_those_of_its_queues(kind: Kind, tag: str) -> None:
    assert {other: live_tags([offering("a", queue_name(kind, tag))], other) for other in Kind} == {**dict.fromkeys(Kind, ()), kind: (tag,)}


def test_slots_and_tags_come_from_live_workers() -> None:
    workers = [offering("a", "selfplay.cpu", "eval.cpu", slots=2), offering("b", "selfplay.cpu"), offering("c", "eval.jarvis")]
    assert slots_of(workers, "selfplay.cpu") == 3
    assert slots_of(workers, "selfplay.cuda") == 0
    assert live_tags(workers, "eval") == ("cpu", "jarvis")
    assert live_tags(workers, "selfplay") == ("cpu",)


def test_evaluation_prefers_the_runs_tag_then_cpu_then_any() -> None:
    workers = [offering("a", "eval.cpu"), offering("b", "eval.zeus"), offering("c", "eval.ares")]
    assert eval_tag(workers, "zeus") == "zeus"
    assert eval_tag(workers, "cuda") == "cpu"
    assert eval_tag(workers[1:], "cuda") == "ares"
    assert eval_tag([], "cuda") == "cuda"
    assert eval_tag([offering("d", "eval.browser")], "cpu") == "cpu", "tabs play some matches only"


BOTH, HELPER = offering("a", "selfplay.cpu", "eval.cpu"), offering("c", "selfplay.cpu", slots=2)
PLAY, JUDGE = job("selfplay.cpu", JobState.LEASED), job("eval.cpu", JobState.LEASED)


@pytest.mark.parametrize(
    ("workers", "jobs", "full"),
    [
        ([BOTH], [PLAY], True),  # busy with another queue
        ([BOTH, offering("b", "eval.cpu")], [PLAY], False),
        ([BOTH, HELPER], [PLAY] * 2, False),  # only jobs beyond the slots of their own queue keep a shared worker busy
        ([BOTH, HELPER], [PLAY] * 3, True),
        ([BOTH, HELPER], [JUDGE, PLAY], True),
        ([BOTH, HELPER], [PLAY], False),
        ([BOTH], [JUDGE] * 2, True),
        ([BOTH], [job("eval.cuda", JobState.LEASED)], False),
        ([BOTH], [job("eval.cpu", JobState.QUEUED)] * 5, False),
    ],
)
def test_a_queue_is_full_when_no_slot_of_its_workers_is_free(workers: list[Heartbeat], jobs: list[JobView], full: bool) -> None:
    assert is_full(workers, jobs, "eval.cpu") is full


def test_tags_of_a_process_are_those_it_names_and_those_of_its_queues() -> None:
    assert tags_of(offering("a", "selfplay.cpu", "eval.jarvis")) == {"cpu", "jarvis"}
    assert tags_of(msgspec.structs.replace(offering("a", "selfplay.cpu"), tags=("cuda",))) == {"cpu", "cuda"}


def test_the_last_full_moment_is_remembered_until_the_queue_goes_away() -> None:
    workers = [offering("a", "eval.cpu")]
    seen = note_full({}, workers, [], 100)
    assert seen == {"eval.cpu": 100}
    seen = note_full(seen, workers, [], 200)
    assert seen == {"eval.cpu": 100}
    seen = note_full(seen, workers, leased("eval.cpu", 1), 300)
    assert note_full(seen, workers, [], 400) == {"eval.cpu": 300}
    assert note_full(seen, [], [], 500) == {}


def test_what_a_fleet_offers_is_one_value_for_each_kind_of_worker() -> None:
    players = [offering(f"w{index}", "selfplay.cpu", slots=2) for index in range(500)]
    workers = [*players, offering("gpu", "selfplay.cuda"), offering("idle")]
    assert condense(workers) == (Offer(("selfplay.cpu",), 1000), Offer(("selfplay.cuda",), 1))


def test_live_queues_and_queues_with_jobs_stand_by_name() -> None:
    workers = (offering("a", "selfplay.cpu", "eval.cpu", slots=2), offering("b", "selfplay.cpu", slots=3))
    waiting = (("selfplay.cpu", 7_000), ("selfplay.cpu", 4_000), ("selfplay.cuda", 9_500))
    jobs = (*leased("selfplay.cpu", 1), *(job(queue, JobState.QUEUED, created_ms) for queue, created_ms in waiting))
    idle, busy, orphan = queue_table(workers, jobs, 10_000)
    assert (idle.queue, idle.queued, idle.leased, idle.slots, idle.workers, idle.oldest_queued_s) == ("eval.cpu", 0, 0, 2, 1, None)
    assert (busy.queue, busy.queued, busy.leased, busy.slots, busy.workers, busy.oldest_queued_s) == ("selfplay.cpu", 2, 1, 5, 2, 6.0)
    assert (orphan.queue, orphan.queued, orphan.slots, orphan.workers, orphan.oldest_queued_s) == ("selfplay.cuda", 1, 0, 0, 0.5)
    assert queue_table((), (), 0) == []


def test_a_job_of_a_host_whose_clock_is_ahead_has_waited_for_no_time() -> None:
    [ahead] = queue_table((), (job("selfplay.cpu", JobState.QUEUED, 10_400),), 10_000)
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
