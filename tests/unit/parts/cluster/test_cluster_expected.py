"""What a cluster is expected to do: by the data sheet of its GPUs and the network of its run, with every assumption said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from azq import games
from azq.config import NetworkConfig
from azq.errors import ConfigError
from azq.nets import NetSpec
from azq.parts.cluster.arithmetic import of_network, read_figures
from azq.parts.cluster.checks import check
from azq.parts.cluster.description import cluster_of, read_cluster
from azq.parts.cluster.expected import expected, figures_of, figures_or_general, leaf_s, read_gpus

MAXOUT = read_cluster(Path(__file__).parents[4] / "ops" / "clusters" / "maxout.toml")
GPUS, MEASURED = read_gpus()


def cluster(gpu: str = "H200", count: int = 1, **run: Any) -> Any:
    kinds = {"box": {"per_hour": 1.0, "vcpus": 64, "gpus": 2, "gpu": gpu}}
    machines = {"play": {"kind": "box", "roles": ["selfplay", "learner"]}, "more": {"kind": "box", "count": count, "roles": ["inference"]}}
    wanted = {
        "game": "connect_four",
        "preset": "gpu",
        "settings": ["network={kind='resnet', blocks=5, channels=128}"],
        "until": "steps=9",
        **run,
    }
    return cluster_of({"cluster": {"name": "c"}, "kinds": kinds, "machines": machines, "run": wanted}, "")


def test_the_reference_is_the_network_that_was_measured_and_its_figures_come_out_again() -> None:
    flops, traffic, _ = of_network(NetworkConfig(blocks=5, channels=128), NetSpec.of(games.load("connect_four")))
    assert (flops, traffic) == (MEASURED.workload.flops, pytest.approx(MEASURED.workload.traffic, rel=0.01))
    assert 1 / sum(leaf_s(GPUS["H200"], MEASURED.workload, MEASURED)) == pytest.approx(read_figures()[0]["evaluations_per_s_per_gpu"])
    assert 0.5 < MEASURED.arithmetic < 1
    assert 0.5 < MEASURED.bandwidth < 1


def test_the_flagship_is_planned_with_its_own_gpus_and_network() -> None:
    """Its plan names 30,000 evaluations a second an A10G; the bound is 2.5 times that, and docs/cluster.md says what it leaves out."""
    figures, assumed = figures_of(MAXOUT)
    assert figures["evaluations_per_s_per_gpu"] == pytest.approx(75_400, rel=0.02)
    assert (figures["inference_gpus"], figures["training_gpus"], figures["cpu_cores"]) == (16, 8, 768)
    assert (figures["leaves_per_request"], figures["training_batch"]) == (64, 2048)
    said = " ".join(assumed)
    assert all(word in said for word in ("beasty_bar", "A10G", "H100", "MFLOP", "data sheet", "full", "connect four", "random"))


def test_more_gpus_faster_ones_and_smaller_networks_evaluate_more() -> None:
    def rate(wanted: Any) -> float:
        return next(step.value for step in expected(wanted)[0] if step.what == "evaluations")

    one = rate(cluster())
    assert rate(cluster(count=4)) == pytest.approx(4 * one)
    assert rate(cluster("T4")) < rate(cluster("A10G")) < rate(cluster("A100")) < rate(cluster("H100")) < one
    assert rate(cluster(settings=["network={kind='resnet', blocks=10, channels=128}"])) < 0.6 * one


def test_a_leaf_takes_its_arithmetic_and_its_memory_one_after_the_other() -> None:
    load = replace(MEASURED.workload, flops=2e8, traffic=1e6)
    arithmetic, memory = leaf_s(GPUS["A10G"], load, MEASURED)
    assert arithmetic == pytest.approx(2e8 / (70e12 * 788 / 989))
    assert memory == pytest.approx(1e6 / (600e9 * MEASURED.bandwidth))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (lambda: cluster("A9000"), r"no data sheet of the GPUs of box: say gpu = .*, of T4, A10G"),
        (lambda: cluster(game="own.py:Own", name="own", preset="", settings=[]), "own.py:Own is none"),
        (lambda: read_cluster(Path(__file__).parents[4] / "ops" / "clusters" / "box.toml"), "no GPU has the role 'inference'"),
    ],
)
def test_nothing_is_expected_where_nothing_is_known(wanted: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        expected(wanted())
    assert figures_or_general(wanted()) == read_figures()[0]


def test_the_brokers_that_the_plan_counts_are_those_that_the_note_asks_for() -> None:
    figures = figures_or_general(MAXOUT)
    wanted = next(step.value for step in expected(MAXOUT)[0] if step.what == "data brokers")
    (note,) = [finding.evidence for finding in check(MAXOUT, figures) if "data brokers" in finding.evidence]
    assert note.startswith(f"16 GPUs need {wanted:.0f} data brokers")
    assert "selfplay.games_in_flight" in note
