"""Settings of a run that have to agree with each other: which devices its ranks take, where its stages begin."""

from __future__ import annotations

from typing import Any

import pytest

from azq.config import ArenaConfig, LearnerConfig, SearchConfig, dump_run, merge, parse_run
from azq.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "ranks"),
    [({"ranks": 3}, 3), ({"devices": ("cpu", "cpu")}, 2), ({"devices": ("cuda:2", "cuda:0"), "ranks": 2}, 2)],
)
def test_devices_count_the_ranks(settings: dict[str, Any], ranks: int) -> None:
    config = LearnerConfig(**settings)
    assert config.ranks == ranks
    assert LearnerConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"devices": ("cuda:1", "cuda:1")}, "devices name cuda:1 more than once"),
        ({"devices": ("cuda:0", "cuda")}, "devices name 'cuda'; each is cpu, mps or a GPU with its number"),
        ({"devices": ("auto",)}, "devices name 'auto'"),
        ({"devices": ("cuda:0", "cpu")}, "devices cuda:0, cpu are of several kinds"),
        ({"devices": ("cpu", "cpu"), "device": "cpu"}, "device is 'cpu' and devices are named; set one of the two"),
        ({"devices": ("cpu", "cpu"), "ranks": 3}, "ranks is 3, devices are 2; leave ranks out"),
    ],
)
def test_devices_that_no_ranks_can_have_are_refused_with_the_remedy(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LearnerConfig(**settings)


@pytest.mark.parametrize(
    ("stages", "complaint"),
    [
        ([{"num_simulations": 8}], "a stage begins `at` a share of the horizon or after so many `samples`; give one of the two"),
        ([{"at": 0.1, "samples": 5, "num_simulations": 8}], "give one of the two"),
        ([{"at": 0.1, "num_simulations": 8}, {"samples": 5, "num_simulations": 9}], "take one for all"),
        ([{"samples": 5, "num_simulations": 8}, {"samples": 5, "num_simulations": 9}], "let `samples` grow"),
        ([{"at": 0.5, "num_simulations": 8}, {"at": 0.1, "num_simulations": 9}], "let `at` grow"),
    ],
)
def test_stages_that_never_begin_in_order_are_refused(stages: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        SearchConfig.model_validate({"schedule": stages})


def test_stages_of_older_runs_are_read_as_they_were_written() -> None:
    old = {"search": {"schedule": [{"at": 0.3, "num_simulations": 32}]}}
    sections = parse_run(old, "an older run")
    assert dump_run(sections)["search"]["schedule"] == old["search"]["schedule"], "so that older workers read it"
    stage = sections.search.schedule[0]
    assert (stage.at, stage.samples) == (0.3, None)
    assert [stage.begun(progress, 10**9) for progress in (0.29, 0.3)] == [False, True]


def test_lockstep_takes_rates_by_samples_and_none_by_shares_of_a_horizon() -> None:
    lockstep = {"search": {"reuse_subtree": False}, "learner": {"lockstep_games": 8, "lr_drops": []}}
    by_samples = merge(lockstep, {"learner": {"lr_schedule": [{"samples": 100, "factor": 0.5}]}})
    assert parse_run(by_samples, "here").learner.lr_schedule[0].factor == 0.5
    by_share = merge(lockstep, {"learner": {"lr_schedule": [{"at": 0.5, "factor": 0.5}]}})
    with pytest.raises(ConfigError, match=r"lockstep_games goes with none of learner.lr_schedule by `at`"):
        parse_run(by_share, "here")


def test_runs_that_name_settings_of_earlier_versions_go_on_without_them_where_they_did_nothing() -> None:
    old = {"learner": {"population": 1, "population_every_steps": 500, "soft_weight": 4.0, "reply_weight": 0.1, "batch_size": 64}}
    assert parse_run(old, "an older run").learner == LearnerConfig(batch_size=64)
    with pytest.raises(ConfigError, match=r"learner: Value error, population = 4 is a setting of earlier versions; leave it out"):
        parse_run({"learner": {"population": 4}}, "an older run")
    assert parse_run({"arena": {"grade_every_s": 30.0, "games_per_job": 50}}, "an older run").arena == ArenaConfig()
    with pytest.raises(ConfigError, match=r"network\.auxiliary\.0: Input should be 'advantage', 'margin' or 'hidden'"):
        parse_run({"network": {"auxiliary": ["reply", "margin", "soft"]}}, "an older run")
