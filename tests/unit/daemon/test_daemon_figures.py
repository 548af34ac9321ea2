"""Fleet figures as Prometheus metrics."""

from __future__ import annotations

from typing import Any

import pytest
from factories import heartbeat
from prometheus_client.core import Metric

from azq import metrics
from azq.status.brokers import PlaneFacts
from azq.wire.messages import Heartbeat
from daemon.api import figures


def beat(worker: str, role: str, **rates: float) -> Heartbeat:
    return heartbeat(role, worker, started_ms=5_000, sent_ms=9_000, rates=rates)


def samples(families: Any) -> dict[tuple[str, ...], float]:
    """Name and label values -> value."""
    found: list[Metric] = list(families)
    return {(sample.name, *sample.labels.values()): sample.value for family in found for sample in family.samples}


def test_a_process_shows_what_its_heartbeat_says_and_nothing_else() -> None:
    learner = beat("l", "learner", **{metrics.CPU_S: 12.5, metrics.DISK_FREE_BYTES: 1e9})
    inference = beat("i", "inference", **{metrics.at_quantile(metrics.EVAL_LATENCY_MS, 0.95): 40.0, metrics.WEIGHT_SWITCH_S: 0.25})
    said = samples(figures.of_workers([learner, inference], now_ms=10_000))
    assert said["azq_heartbeat_age_seconds", "l", "learner", "h"] == 1.0
    assert said["azq_process_start_time_seconds", "i", "inference", "h"] == 5.0
    assert said["azq_process_cpu_seconds_total", "l", "learner", "h"] == 12.5
    assert said["azq_eval_latency_seconds", "i", "inference", "h", "0.95"] == pytest.approx(0.04)
    assert said["azq_weight_switch_seconds", "i", "inference", "h"] == 0.25
    assert ("azq_weight_switch_seconds", "l", "learner", "h") not in said


def test_a_plane_that_is_away_shows_only_that() -> None:
    said = samples(figures.of_planes([PlaneFacts("control", True, 7, 100, 3, {"r": 9}), PlaneFacts("data")]))
    assert said["azq_broker_up", "control"] == 1
    assert said["azq_broker_up", "data"] == 0
    assert said["azq_stream_entries", "control", "r"] == 9
    assert said["azq_dead_letters_total", "control"] == 3
    assert ("azq_broker_used_memory_bytes", "data") not in said


def test_quantiles_are_of_the_newest_observations() -> None:
    recent = metrics.Recent(keep=100)
    assert recent.quantiles() == (0.0, 0.0, 0.0)
    for value in range(1, 201):
        recent.add(value)
    assert recent.quantiles() == (150, 195, 199)
    assert recent.named("x") == {"x_p50": 150, "x_p95": 195, "x_p99": 199}
