"""What the workers of a run do together, in literal figures."""

from __future__ import annotations

import json
from functools import partial

import pytest

from azq.status.workers import FleetRates, WorkerStatus, fleet_rates, joined, lag_of, team_of, worker_status
from azq.wire.messages import Heartbeat


def beat(role: str, versions: dict[str, int] | None = None, *, run: str = "", worker: str = "w", **rates: float) -> Heartbeat:
    return Heartbeat(role, worker, "h", 7, "1.2", 1, 1_000, 4_000, run=run, rates=rates, weight_versions=versions or {})


def test_a_heartbeat_as_operators_read_it() -> None:
    sent = Heartbeat("eval", "w", "h", 7, "1.2", 1, 1_000, 4_000, "r", ("eval.cpu",), ("cpu",), 3, {"games_per_s": 2.0}, {"r": 9})
    assert worker_status(sent, 5_500) == WorkerStatus(
        "w", "eval", "h", 7, "1.2", "r", ("eval.cpu",), ("cpu",), 3, 1.5, 3.0, {"games_per_s": 2.0}, {"r": 9}
    )


def test_a_clock_that_is_behind_makes_no_time_negative() -> None:
    behind = Heartbeat("eval", "w", "h", 7, "1.2", 1, 4_000, 1_000)
    status = worker_status(behind, 500)
    assert (status.age_s, status.up_s) == (0.0, 0.0)


def test_nobody_does_nothing() -> None:
    assert fleet_rates([]) == FleetRates(0.0, 0.0, 0.0, 0.0, 0.0)
    assert fleet_rates([beat("selfplay"), beat("inference"), beat("learner", games_per_s=9.0)]) == FleetRates(0.0, 0.0, 0.0, 0.0, 0.0)


def test_rates_are_summed_over_the_roles_that_have_them() -> None:
    workers = [
        beat("selfplay", games_per_s=0.5, simulations_per_s=10.0, evaluations_per_s=3.0, network_busy=0.9),
        beat("selfplay", games_per_s=0.25),
        beat("eval", games_per_s=8.0, simulations_per_s=5.0, evaluations_per_s=1.0),
    ]
    assert fleet_rates(workers) == FleetRates(0.75, 15.0, 4.0, 0.0, 0.0)
    serving = [beat("inference", evaluations_per_s=6.0, mean_batch=2.0, network_busy=0.5), beat("inference", network_busy=0.0)]
    assert fleet_rates([*workers, *serving]) == FleetRates(0.75, 15.0, 6.0, 2.0, 0.25)


def test_a_mean_batch_is_that_of_all_leaves_over_all_batches() -> None:
    def mean(*rates: tuple[float, float]) -> float:
        return fleet_rates([beat("inference", evaluations_per_s=rate, mean_batch=batch) for rate, batch in rates]).mean_batch

    assert mean((30.0, 10.0), (90.0, 90.0)) == 30.0  # four batches a second
    assert mean((0.5, 0.5)) == 0.5
    assert mean((30.0, 10.0), (0.0, 5.0), (7.0, 0.0)) == 10.0
    halves = [beat("inference", mean_batch=5.0), beat("inference", evaluations_per_s=7.0)]
    assert fleet_rates([*halves, beat("inference", evaluations_per_s=30.0, mean_batch=10.0)]).mean_batch == 10.0


@pytest.mark.parametrize(
    ("workers", "lag"),
    [
        ([], 0.0),
        ([beat("selfplay", {"r": 7}), beat("selfplay", {"r": 10}), beat("selfplay", {"s": 1})], 1.5),
        ([beat("selfplay", {"r": 12})], 0.0),  # newer than what the reader knows
        ([beat("selfplay", {"s": 1})], 0.0),
        ([beat("inference", {"r": 1}), beat("learner", policy_lag=9.0)], 0.0),
        ([beat("selfplay", {"r": 1}, policy_lag=1.0), beat("selfplay", policy_lag=2.0), beat("selfplay", {"r": 1})], 1.5),
    ],
    ids=["nobody", "by versions", "ahead", "of another run", "none that plays", "said"],
)
def test_a_lag_is_what_workers_say_or_what_their_versions_tell(workers: list[Heartbeat], lag: float) -> None:
    assert lag_of(workers)("r", 10) == lag


def test_a_run_adds_its_own_to_the_shared_workers() -> None:
    status = partial(worker_status, now_ms=5_000)
    shared = team_of([beat("selfplay", {"r": 8}, worker="a", games_per_s=1.0)], status)
    learner, player = beat("learner", run="r", worker="l"), beat("selfplay", {"r": 10}, run="r", worker="p", games_per_s=2.0)
    for own, games_per_s, lag in (([], 1.0, 2.0), ([learner], 1.0, 2.0), ([player], 3.0, 1.0), ([learner, player], 3.0, 1.0)):
        team = joined(shared, own, status)
        assert team.beats == (*shared.beats, *own)
        assert [worker.worker for worker in team.workers] == ["a", *(beat.worker for beat in own)]
        assert [worker["worker"] for worker in json.loads(bytes(team.encoded))] == [worker.worker for worker in team.workers]
        assert (team.rates.games_per_s, team.lag("r", 10)) == (games_per_s, lag)
    nobody = joined(team_of([], status), [learner], status)
    assert [worker["worker"] for worker in json.loads(bytes(nobody.encoded))] == ["l"]
    assert bytes(joined(team_of([], status), [], status).encoded) == b"[]"
