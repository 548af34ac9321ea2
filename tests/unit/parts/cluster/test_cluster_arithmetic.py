"""The plan's arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from azq.errors import ConfigError
from azq.parts.cluster.arithmetic import figures_of, figures_or_general, microseconds, plan, read_figures
from azq.parts.cluster.checks import check
from azq.parts.cluster.description import cluster_of, read_cluster

CLUSTERS = Path(__file__).parents[4] / "ops" / "clusters"


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


def cluster(gpu: str = "H200", **run: Any) -> Any:
    kinds = {"box": {"per_hour": 1.0, "vcpus": 64, "gpus": 2, "gpu": gpu}}
    machines = {"play": {"kind": "box", "roles": ["selfplay", "learner"]}, "more": {"kind": "box", "count": 3, "roles": ["inference"]}}
    return cluster_of({"cluster": {"name": "c"}, "kinds": kinds, "machines": machines, "run": {"game": "connect_four", **run}}, "")


def test_a_gpu_is_to_the_measured_one_as_their_data_sheets(figures):
    own = figures_of(cluster())
    assert (own["inference_gpus"], own["training_gpus"], own["cpu_cores"]) == (6, 2, 64)
    for name in ("evaluations_per_s_per_gpu", "search_cores_per_gpu", "games_per_s_per_gpu", "training_samples_per_s_per_gpu"):
        assert own[name] == figures[name]
        assert figures_of(cluster("A100"))[name] == pytest.approx(figures[name] * 312 / 989)


def test_the_flagship_is_planned_with_its_own_gpus_and_run():
    maxout = read_cluster(CLUSTERS / "maxout.toml")
    figures = figures_of(maxout)
    assert (figures["inference_gpus"], figures["training_gpus"], figures["cpu_cores"]) == (16, 8, 768)
    assert (figures["leaves_per_request"], figures["training_batch"]) == (64, 2048)
    (note,) = [finding.evidence for finding in check(maxout, figures) if "data brokers" in finding.evidence]
    assert note.startswith(f"16 GPUs need {of(figures, 'data brokers'):.0f} data brokers")


@pytest.mark.parametrize(
    ("unknown", "text"),
    [
        (lambda: cluster("A9000"), r"no data sheet of the GPUs of box: say gpu = .*, of T4, A10G"),
        (lambda: read_cluster(CLUSTERS / "box.toml"), "no GPU has the role 'inference'"),
    ],
)
def test_nothing_is_planned_where_nothing_is_known(unknown, text, figures):
    with pytest.raises(ConfigError, match=text):
        figures_of(unknown())
    assert figures_or_general(unknown()) == figures
