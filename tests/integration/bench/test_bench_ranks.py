"""The benchmark of ranks measures real processes."""

from __future__ import annotations

from typing import Any

import pytest

from azq.config import Config, LearnerConfig, NetworkConfig, RunConfig
from azq.errors import EvaluationTimeout
from azq.parts.lab.bench.ranks import bench_ranks


def config_of(**learner: Any) -> Config:
    return Config(
        run=RunConfig(game="tic_tac_toe"),
        network=NetworkConfig(blocks=1, channels=8),
        learner=LearnerConfig(**{"device": "cpu", "batch_size": 64, **learner}),
    )


@pytest.mark.release
def test_two_ranks_are_measured_beside_one_and_beside_two_that_do_not_synchronise():
    found = bench_ranks(config_of(), 2.0, 2)
    assert (found["ranks"], found["batch_size_per_rank"], found["device"]) == (2, 64, "cpu")
    assert found["samples_per_s"] > 0
    assert found["weak_scaling_efficiency"] == pytest.approx(found["samples_per_s"] / 2 / found["samples_per_s_alone"], abs=0.01)
    assert found["share_of_unsynchronised"] == pytest.approx(found["samples_per_s"] / found["samples_per_s_unsynchronised"], abs=0.01)
    assert 0 < found["share_of_waiting"] < 1
    safety = [value for name, value in found.items() if name.startswith("safe_over_")]
    assert len(safety) == 4
    assert min(safety) > 0


@pytest.mark.release
def test_a_rank_that_cannot_start_is_an_error_and_no_hang():
    with pytest.raises(EvaluationTimeout, match="ended with exit code"):
        bench_ranks(config_of(device="cuda:99"), 1.0, 2)
