"""What a study's file may say, and what is said of one that is wrong before any run starts."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.config import load
from azq.errors import AzqError, ConfigError
from azq.parts.lab.sweep.plan import read_plan, surely_worse

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
        ('name = "rates"', 'name = "rates"\nsettled = 3', "study.toml: settled goes by positions: it needs metric"),
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


marks = st.text("012", min_size=60, max_size=60)
certainties = st.floats(0.501, 0.999)


def at(ours: str, best: str, certainty: float) -> bool:
    return surely_worse({"500": ours}, {"400": best}, certainty)


@given(marks, marks, marks, certainties)
def test_what_both_lose_or_keep_or_one_was_not_asked_changes_nothing(ours: str, best: str, common: str, certainty: float) -> None:
    before = at(ours, best, certainty)
    assert at(ours + common, best + common, certainty) == before
    assert at(ours + common, best + "0" * 60, certainty) == before


@given(marks, marks, certainties)
def test_at_most_one_of_two_is_surely_worse_and_nobody_than_himself(ours: str, best: str, certainty: float) -> None:
    assert not at(ours, ours, certainty)
    assert not (at(ours, best, certainty) and at(best, ours, certainty))


@given(marks, marks, st.integers(0, 59), certainties)
def test_one_more_loss_never_makes_it_better(ours: str, best: str, place: int, certainty: float) -> None:
    kept, lost = (ours[:place] + mark + ours[place + 1 :] for mark in "12")
    assert at(lost, best, certainty) >= at(kept, best, certainty)


def test_equals_are_rarely_told_apart_and_twice_the_errors_mostly_are() -> None:
    luck = random.Random(1)

    def played(share: float) -> str:
        return "".join("2" if luck.random() < share else "1" for _ in range(600))

    assert sum(at(played(0.1), played(0.1), 0.99) for _ in range(300)) <= 9
    assert sum(at(played(0.2), played(0.1), 0.99) for _ in range(300)) >= 290


def test_only_the_same_point_is_compared() -> None:
    bad, good = "2" * 30, "1" * 30
    assert surely_worse({"100": good, "500": bad}, {"450": good, "900": bad}, 0.99)
    assert not surely_worse({"500": bad}, {"600": good}, 0.99)
    assert not surely_worse({}, {"400": good}, 0.99)
