"""What a study's file may say, and what is said of one that is wrong before any run starts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from azq.config import load
from azq.errors import AzqError, ConfigError
from azq.parts.lab.sweep.plan import read_plan

SOUND = """
[study]
name = "rates"
game = "tic_tac_toe"
until = "games=500"

[settings]
"arena.every_s" = 0
"arena.opponents" = []

[space]
"learner.learning_rate" = { low = 1e-4, high = 1e-2, log = true }
"search.num_simulations" = { choices = [8, 16] }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_a_trial_is_the_settings_and_what_was_chosen(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, SOUND))
    texts = plan.overrides({"learner.learning_rate": 0.001, "search.num_simulations": 16})
    config = load(overrides=texts)
    assert (config.arena.every_s, config.learner.learning_rate, config.search.num_simulations) == (0, 0.001, 16)
    assert config.arena.opponents == ()
    assert not plan.upwards


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('name = "rates"', 'name = "a b"', "name"),
        ("games=500", "games=0", "--until"),
        ('until = "games=500"', "untill = 3", "untill"),
        ('name = "rates"', 'name = "rates"\npaired = 0.99', "study.toml: paired"),
        ("games=500", "cpu-s=0", "cpu-s=N is a positive number"),
        ('until = "games=500"', 'until = "games=500"\nwhere = "fleet"', "where: Input should be 'here'"),
        ("low = 1e-4", "low = 1.0", "is not below high"),
        ("low = 1e-4", "low = 0.0", "log needs a low above 0"),
        ("choices = [8, 16]", "choices = [8]", "choices"),
        ("choices = [8, 16]", "choices = [8, 0]", "search.num_simulations"),
        ("learner.learning_rate", "learner.lerning_rate", "lerning_rate"),
        ("learner.learning_rate", "daemon.port", "'daemon.port' is no setting of a run"),
        ('game = "tic_tac_toe"', 'game = "tictactoe"', "tictactoe"),
        ("[space]", "[spice]", "space"),
        ("[study]", "[study", "study.toml"),
    ],
)
def test_what_is_wrong_is_named_before_any_run(tmp_path: Path, before: str, after: str, named: str) -> None:
    with pytest.raises(AzqError, match=named.replace("[", r"\[")):
        read_plan(written(tmp_path, SOUND.replace(before, after)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        read_plan(tmp_path / "absent.toml")


def test_a_budget_of_cpu_is_counted_here_and_the_others_by_the_run(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, SOUND.replace("games=500", "cpu-s=90,games=500")))
    assert (plan.limit_cpu_s(), plan.goals) == (90.0, "games=500")
    assert read_plan(written(tmp_path, SOUND)).limit_cpu_s() == math.inf
