"""The plan's arithmetic."""

from __future__ import annotations

import pytest

from azq.parts.cluster.arithmetic import microseconds, plan, read_figures


@pytest.fixture
def figures():
    return read_figures()[0]


def of(figures, what):
    (value,) = [step.value for step in plan(figures) if step.what == what]
    return value


def test_a_small_fleet_is_computed_as_by_hand():
    figures = read_figures()[0] | {
        "inference_gpus": 2,
        "leaves_per_request": 1024,
        "evaluations_per_s_per_gpu": 1_024_000.0,
        "request_bytes_per_leaf": 32.0,
        "reply_bytes_per_leaf": 8.0,
        "broker_us_16kib": 100.0,
        "broker_us_64kib": 400.0,
        "broker_use": 0.25,
        "games_per_s_per_gpu": 50.0,
        "plies_per_game": 30.0,
        "samples_per_insert": 4.0,
        "training_samples_per_s_per_gpu": 24_000.0,
        "training_gpus": 2,
    }
    assert of(figures, "requests") == 2000
    assert of(figures, "a request") == 32
    assert of(figures, "broker CPU a request") == pytest.approx(200)
    assert of(figures, "broker cores") == pytest.approx(0.4)
    assert of(figures, "data brokers") == 2
    assert of(figures, "network of a broker, each way") == pytest.approx(2_048_000 * 40 * 8 / 1e9 / 2)
    assert of(figures, "samples made") == 3000
    assert of(figures, "training GPUs needed") == pytest.approx(0.5)
    assert of(figures, "share of the training GPUs used") == pytest.approx(25)


def test_the_line_goes_through_both_measured_sizes(figures):
    for party in ("broker", "client", "consumer"):
        assert microseconds(figures, party, 16 * 1024) == figures[f"{party}_us_16kib"]
        assert microseconds(figures, party, 64 * 1024) == pytest.approx(figures[f"{party}_us_64kib"])


def test_twice_the_gpus_need_twice_the_rest(figures):
    double = figures | {"inference_gpus": 2 * figures["inference_gpus"]}
    for what in ("evaluations", "requests", "broker cores", "search cores", "games", "samples made", "training GPUs needed"):
        assert of(double, what) == pytest.approx(2 * of(figures, what))


def test_every_measured_figure_names_where_it_comes_from():
    figures, sources = read_figures()
    assert sources
    assert all(sources.values())
    assert all(figures[name] > 0 for name in sources)
