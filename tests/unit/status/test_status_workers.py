"""What the workers of a run do together, in literal figures."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from azq.status.workers import NetworkUse, WorkerStatus, joined, lag_of, network_uses, team_of, worker_status
from azq.wire.messages import Heartbeat


def beat(role: str, versions: dict[str, int] | None = None, *, worker: str = "w", **facts: Any) -> Heartbeat:
    return Heartbeat(role, worker, "h", 7, "1.2", 1, 1_000, 4_000, weight_versions=versions or {}, **facts)


def test_a_heartbeat_as_operators_read_it() -> None:
    sent = Heartbeat("eval", "w", "h", 7, "1.2", 1, 1_000, 4_000, "r", ("eval.cpu",), ("cpu",), 3, {"games_per_s": 2.0}, {"r": 9})
    assert worker_status(sent, 5_500) == WorkerStatus(
        "w", "eval", "h", 7, "1.2", "r", ("eval.cpu",), ("cpu",), 3, 1.5, 3.0, {"games_per_s": 2.0}, {"r": 9}
    )


def test_a_clock_that_is_behind_makes_no_time_negative() -> None:
    behind = Heartbeat("eval", "w", "h", 7, "1.2", 1, 4_000, 1_000)
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
    ],
    ids=["nobody", "by versions", "ahead", "of another run", "none that plays"],
)
def test_a_lag_is_what_the_versions_of_workers_tell(workers: list[Heartbeat], lag: float) -> None:
    assert lag_of(workers)("r", 10) == lag


def test_a_run_adds_its_own_to_the_shared_workers() -> None:
    status = partial(worker_status, now_ms=5_000)
    shared = team_of([beat("selfplay", {"r": 8}, worker="a")], status)
    learner, player = beat("learner", run="r", worker="l"), beat("selfplay", {"r": 10}, run="r", worker="p")
    server = beat("inference", {"r": 10}, run="r", worker="i", by_run={"r": (8.0, 4.0, 1.0)})
    for own, networks, lag in (
        ([], {}, 2.0),
        ([learner], {}, 2.0),
        ([player], {}, 1.0),
        ([learner, player, server], {"r": NetworkUse(4.0, 1.0)}, 1.0),
    ):
        team = joined(shared, own, status)
        assert team.beats == (*shared.beats, *own)
        assert [worker.worker for worker in team.workers] == ["a", *(beat.worker for beat in own)]
        assert [worker["worker"] for worker in json.loads(bytes(team.encoded))] == [worker.worker for worker in team.workers]
        assert (team.networks, team.lag("r", 10)) == (networks, lag)
    nobody = joined(team_of([], status), [learner], status)
    assert [worker["worker"] for worker in json.loads(bytes(nobody.encoded))] == ["l"]
    assert bytes(joined(team_of([], status), [], status).encoded) == b"[]"
