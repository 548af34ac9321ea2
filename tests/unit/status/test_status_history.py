"""The history of a run: points, rates by their counters, and columns for readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import heartbeat, learner_status
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from memory_broker import MemoryBus
from page_site import HISTORY_S, RUN, Site, now_ms

from azq.config import RunSections
from azq.ledger.types import LedgerCounts, RunState
from azq.status.history import COLUMNS, LENGTH, Firsts, FirstsOfRuns, Pace, Recorder, downsample, latest, points_of, rates, read
from azq.status.stages import RunFirsts
from azq.status.state import Desired, DesiredRun, Observed, ObservedRun
from azq.status.workers import NetworkUse
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import Heartbeat, HistoryPoint, LearnerStatus, RunRecord, WeightEvent

COUNTS = LedgerCounts(10, 6, 4, 0, 6, 0, 0, simulations=60, evaluations=300, requests=5)


def beat(role: str, worker: str, run: str = "", **rates: Any) -> Heartbeat:
    facts = {name: rates.pop(name) for name in ("by_run", "weight_versions") if name in rates}
    return heartbeat(role, worker, run=run, rates=rates, **facts)


def learner(**figures: Any) -> LearnerStatus:
    return learner_status(**figures)


def look(state: RunState = RunState.RUNNING, **seen: Any) -> tuple[Desired, Observed]:
    workers = (
        beat("selfplay", "a", games_per_s=9.0, simulations_per_s=9.0, weight_versions={"r": 2}),
        beat("inference", "i", evaluations_per_s=900.0, mean_batch=99.0, by_run={"r": (90.0, 30.0, 0.5), "other": (7.0, 7.0, 0.1)}),
        beat("inference", "j", weight_versions={"r": 3}, by_run={"r": (10.0, 30.0, 0.7)}),
        beat("learner", "l", run="r", samples_per_s=5.0),
        beat("selfplay", "b", run="other", games_per_s=100.0),
    )
    run = ObservedRun(**{"counts": COUNTS, "active_ms": 3_000, "weight_version": 3, **seen})
    return Desired((DesiredRun("r", state, RunSections()),)), Observed(workers, {"r": run})


def test_a_point_has_the_figures_of_the_live_table() -> None:
    trained = learner(step=9, loss_policy=1.5, loss_value=0.5, samples_inserted=70, samples_consumed=15)
    ((name, point),) = points_of(*look(learned=trained), 1000)
    assert (name, point.at_ms, point.games_per_s, point.simulations_per_s) == ("r", 1000, 2.0, 20.0)
    assert (point.evaluations_per_s, point.mean_batch, point.network_busy) == (100.0, 30.0, pytest.approx(0.6))
    assert (point.policy_lag, point.open_games, point.weight_version) == (1.0, 4, 3)
    assert (point.step, point.loss_policy, point.loss_value, point.samples, point.samples_per_s) == (9, 1.5, 0.5, 70, 5.0)
    assert (point.steps_per_s, point.active_ms, point.games, point.simulations, point.trained) == (3.0, 3_000, 6, 60, 15)


def test_a_run_that_does_not_run_has_no_points() -> None:
    assert not list(points_of(*look(RunState.PAUSED), 1000))


def test_the_recorder_keeps_its_pace_also_when_the_clock_is_set_back() -> None:
    bus = MemoryBus()
    recorder = Recorder(bus, 5.0)
    for now in (100_000, 100_500, 104_999, 105_000, 50_000, 50_500):
        recorder.note(*look(), now)
    assert [point.at_ms for point in read(bus, "r", 0)] == [100_000, 105_000, 50_000]


def test_a_recorder_that_begins_goes_on_from_what_another_wrote() -> None:
    bus = MemoryBus()
    counts = [LedgerCounts(0, games, 0, 0, games, 0, 0) for games in (1000, 1100, 1200, 1300)]
    for number, now in enumerate(counts):
        Recorder(bus, 1.0).note(*look(counts=now, active_ms=1_000_000 + 10_000 * number), 1_000 + 10_000 * number)
    assert [point.games_per_s for point in read(bus, "r", 0)] == [1.0, 10.0, 10.0, 10.0]


def test_the_stream_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.status.history.LENGTH", 3)
    bus = MemoryBus()
    recorder = Recorder(bus, 1.0)
    for second in range(1, 9):
        recorder.note(*look(), 1000 * second)
    assert [point.at_ms for point in read(bus, "r", 0)] == [6000, 7000, 8000]
    assert LENGTH * 5 >= 24 * 3600


def test_a_mean_over_each_part_and_nothing_where_nothing_was_known() -> None:
    points = [HistoryPoint(at_ms=at, games_per_s=rate, step=step, loss_policy=loss) for at, rate, step, loss in SERIES]
    thin = downsample(points, 3000, 3)
    assert thin.every_ms == 1000
    assert thin.at_ms == [150, 1500, 3500]
    assert thin.columns["games_per_s"] == [2.0, 8.0, 1.0]
    assert thin.columns["loss_policy"] == [4.0, None, 0.5]


SERIES = [(100, 1.0, 0, 0.0), (200, 3.0, 1, 4.0), (1500, 8.0, 0, 0.0), (3500, 1.0, 5, 0.5)]


@given(st.lists(st.integers(0, 10**7), max_size=60), st.integers(1, 10**7), st.integers(1, 50))
def test_thinning_keeps_order_bounds_and_the_mean_of_all(times: list[int], span_ms: int, buckets: int) -> None:
    points = [HistoryPoint(at_ms=at, games_per_s=float(at % 7)) for at in times]
    thin = downsample(points, span_ms, buckets)
    assert set(thin.columns) == set(COLUMNS)
    assert all(len(column) == len(thin.at_ms) for column in thin.columns.values())
    assert thin.at_ms == sorted(thin.at_ms)
    assert len({at // thin.every_ms for at in thin.at_ms}) == len(thin.at_ms)
    if times and max(times) - min(times) < span_ms:
        assert len(thin.at_ms) <= buckets + 1


def test_a_part_that_is_asked_for_later_has_the_same_means() -> None:
    points = [HistoryPoint(at_ms=at, games_per_s=float(at % 977)) for at in range(0, 100_000, 250)]
    early = downsample(points[:300], 60_000, 60)
    late = downsample(points[40:], 60_000, 60)
    shared = dict(zip(late.at_ms, late.columns["games_per_s"], strict=True))
    both = [(value, shared[at]) for at, value in zip(early.at_ms, early.columns["games_per_s"], strict=True) if at in shared]
    assert len(both) > 50
    assert all(one == other for one, other in both)


def test_history_over_rest_outlives_the_daemon(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant_history(points=600)
    site.bus.publish(keys.history(RUN), b"garbage")
    client = TestClient(site.app, base_url="http://127.0.0.1")
    answer = client.get(f"/v1/runs/{RUN}/history?points=100").json()
    assert 70 <= len(answer["at_ms"]) <= 101
    assert answer["columns"]["loss_policy"][-1] == pytest.approx(1.2, abs=0.02)
    recent = client.get(f"/v1/runs/{RUN}/history?since_ms={now_ms() - 60_000}&points=2000").json()
    assert 8 <= len(recent["at_ms"]) <= 13
    all_of_it = client.get(f"/v1/runs/{RUN}/history?since_ms=0&points=2000").json()
    assert min(all_of_it["at_ms"]) >= now_ms() - 1000 * (HISTORY_S + 60)
    assert client.get("/v1/runs/nope/history").status_code == 404
    assert client.get(f"/v1/runs/{RUN}/history?points=0").status_code == 422
    assert msgspec.json.encode(answer)


def test_the_history_tells_where_each_role_spends_its_time() -> None:
    desired, observed = look(learner=learner(step=1))
    spending = (
        beat("inference", "k", phase_wall_forward=0.6, phase_wall_idle=0.4, phase_cpu_forward=1.9),
        beat("inference", "m", phase_wall_forward=0.8, phase_wall_idle=0.2),
        beat("learner", "n", run="r", phase_wall_backward=0.5),
        beat("learner", "o", run="other", phase_wall_backward=0.1),
    )
    ((_, point),) = points_of(desired, Observed((*observed.workers, *spending), observed.runs), 1000)
    assert point.spent == pytest.approx({"inference_forward": 0.7, "inference_idle": 0.3, "learner_backward": 0.5})
    silent = HistoryPoint(2000)
    partly = HistoryPoint(3000, spent={"inference_idle": 1.0})
    columns = downsample([point, silent, partly], 3000, 3).columns
    assert columns["spent_inference_forward"] == [pytest.approx(0.7), None, 0.0]
    assert columns["spent_learner_backward"] == [0.5, None, None]


def noted(bus: MemoryBus, at_ms: int, **figures: Any) -> None:
    bus.publish(keys.history("r"), encode(HistoryPoint(at_ms, **figures)))


def test_the_first_game_and_the_first_step_are_found_as_they_come_and_then_stay() -> None:
    bus, firsts = MemoryBus(), FirstsOfRuns()
    record = RunRecord("r", b"{}", {}, "", 500)
    found = [firsts.of(bus, record)]
    for at_ms, figures in ((1, {}), (2, {"games": 1}), (3, {"games": 5}), (4, {"step": 1}), (5, {"games": 9, "step": 2})):
        noted(bus, at_ms, **figures)
        found.append(firsts.of(bus, record))
    assert found == [RunFirsts(), RunFirsts(), RunFirsts(2), RunFirsts(2), RunFirsts(2, 4), RunFirsts(2, 4)]
    assert Firsts(bus, "r").read() == RunFirsts(2, 4)
    bus.delete(keys.history("r"))
    assert firsts.of(bus, record) == RunFirsts(2, 4)
    assert firsts.of(bus, msgspec.structs.replace(record, created_ms=501)) == RunFirsts(), "another run of that name"


def test_where_the_beginning_of_a_history_is_gone_the_first_trained_weights_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.status.history.LENGTH", 2)
    bus = MemoryBus()
    bus.publish(keys.weights("r"), b"noise")
    for version, step in ((1, 0), (2, 60), (3, 90)):
        bus.publish(keys.weights("r"), encode(WeightEvent("r", version, "", "", step, 100 * version)))
    for at_ms in (900, 905):
        noted(bus, at_ms, games=7, step=80)
    assert Firsts(bus, "r").read() == RunFirsts(0, 200)


def point(active_s: float, games: int = 0, **counters: Any) -> HistoryPoint:
    return HistoryPoint(0, active_ms=round(1000 * active_s), games=games, **counters)


@pytest.mark.parametrize(
    ("points", "now", "games_per_s"),
    [
        ([], point(4, 8), 2.0),
        ([point(5, 0), point(10, 1), point(15, 3), point(20, 4), point(25, 90)], point(30, 93), 6.0),
        ([point(0, 0), point(5, 0), point(10, 0), point(15, 9), point(20, 9)], point(20, 9), 0.6),
        ([point(1, 0), point(10, 4), point(20, 4), point(30, 4)], point(40, 4), pytest.approx(4 / 39)),
        ([point(10, 4), point(20, 4), point(30, 4)], point(40, 4), 0.0),
        ([point(100, 900), point(105, 20)], point(110, 25), 1.0),
        ([point(100, 900)], point(110, 25), 0.0),
        ([point(900, 1)], point(110, 25), 0.0),
        ([point(20, 5)], point(20, 5), 0.0),
        ([point(100, 50), point(104, 58)], point(108, 66), 2.0),
    ],
    ids=["begins", "over 15 s", "nothing just now", "seldom", "stands still", "fell", "fell just now", "again", "same moment", "short"],
)
def test_games_are_counted_over_some_time_and_from_no_fall_on(points: list[HistoryPoint], now: HistoryPoint, games_per_s: Any) -> None:
    assert rates(points, now).games_per_s == games_per_s


def test_every_rate_has_its_counter() -> None:
    before, now = point(0), point(20, 20, simulations=4_000, evaluations=2_000, requests=50, trained=640, step=10)
    assert rates([before], now) == Pace(1.0, 200.0, 100.0, 32.0, 0.5, 40.0, 0.0)
    assert rates([before], now, NetworkUse(256.0, 0.75)) == Pace(1.0, 200.0, 100.0, 32.0, 0.5, 256.0, 0.75)


def test_the_newest_point_is_told_as_it_is_until_it_is_old() -> None:
    newest = point(100, 50, games_per_s=7.0, mean_batch=3.0, steps_per_s=0.5)
    assert latest(newest, point(105, 60)) == Pace(games_per_s=7.0, mean_batch=3.0, steps_per_s=0.5)
    assert latest(newest, point(120, 90)).games_per_s == 2.0
    assert latest(None, point(10, 30)).games_per_s == 3.0
    older_azq = HistoryPoint(0, games=50, games_per_s=9.0)
    assert latest(older_azq, point(10, 60)).games_per_s == 6.0
