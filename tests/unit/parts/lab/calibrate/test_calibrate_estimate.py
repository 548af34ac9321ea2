"""An estimate in words, and levels that were published."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from estimated_sides import REUSE, sides

from azq.games import names
from azq.parts.lab.calibrate.estimate import Estimate, reaches
from azq.parts.lab.calibrate.rates import AtOnce, Need, Point, by_stages, game_samples, hours_to, points_of, same_rules
from azq.pretrained import card

DOCS = Path(__file__).parents[5] / "docs"


def estimated(*later: tuple[int, int], **changes: object) -> Estimate:
    stages = by_stages(sides(), REUSE, [(0, 16), *later])
    points = points_of("connect_four")
    values: dict[str, object] = {
        "game": "connect_four", "setting": "preset", "reuse": REUSE, "sides": sides(), "stages": stages,
        "needs": [Need("the window", 10**9, "learner.max_window", 1000)], "usable_bytes": 10**10,
        "free_disk_bytes": 9 * 10**9, "watts": 100.0, 
        "reached": reaches(points, stages, 64, REUSE), "unpublished": "", "trained_game_samples": None, "others_cores": 0.0,
    }  # fmt: skip
    return Estimate(**values | changes)  # type: ignore[arg-type]


def test_the_text_holds_what_matters() -> None:
    text = "\n".join(estimated().as_text())
    for part in (
        "self-play binds",
        "self-play is the slower side",
        "games 180,000; samples 3,600,000; training steps 28,125",
        "evaluations 108,000,000",
        "at worst 1.00 GB of 10.00 GB",
        "90.0 MB of games an hour; 9.00 GB are free, for 100 h",
        "0.100 kWh an hour at 100 W",
        "0.17 h, 0.017 kWh: 4.0 % errors",
    ):
        assert part in text
    assert "WARNING" not in text
    assert "meanwhile" not in text


def test_what_is_wrong_or_unknown_is_said() -> None:
    text = "\n".join(estimated(usable_bytes=10**9, others_cores=1.25, reached=[], unpublished="no curve of it").as_text())
    assert "WARNING      at worst 1.00 GB of 1.00 GB" in text
    assert "set learner.max_window=800 or less" in text
    assert "other programs took 1.2 of 64 cores" in text
    assert "until        no curve of it" in text


def test_games_are_told_as_they_begin_and_as_a_run_that_learned_had_them() -> None:
    learned = estimated(trained_game_samples=30.0)
    assert "games 180,000; samples 3,600,000" in (text := "\n".join(learned.as_text()))
    assert "games 120,000 by what is learned, if a game comes to 30.0 samples, as in the run behind azq:connect_four" in text
    assert learned.values()["trained_games"] == 120_000
    assert estimated().values()["trained_games"] is None
    assert "by what is learned" not in "\n".join(estimated().as_text())


def test_samples_of_a_game_are_those_of_the_run_behind_its_weights() -> None:
    training = card("gomoku").training
    assert game_samples("gomoku") == training.samples / training.games
    assert game_samples("openspiel:breakthrough") is None


def test_values_are_json() -> None:
    values = json.loads(json.dumps(estimated().values()))
    assert (values["memory_bytes"], values["kwh_per_hour"], values["rates"]["binds"]) == (10**9, 0.1, "self-play")


def test_a_level_is_reached_by_samples_or_by_cores() -> None:
    stages = by_stages(sides(), REUSE, [(0, 64)])
    assert hours_to(Point("l", "p", samples=7_200_000), stages, 2, REUSE) == 2.0
    assert hours_to(Point("l", "p", minutes=30, cores=2), stages, 4, REUSE) == 0.25
    assert hours_to(Point("l", "p"), stages, 4, REUSE) is None


def test_later_stages_with_more_simulations_are_told_and_counted() -> None:
    estimate = estimated((1_800_000, 32), (3_600_000, 64))
    lines = [line for line in estimate.as_text() if line.startswith("later")]
    assert "32 simulations from 1,800,000 samples on, after 0.50 h: samples 1,800,000 an hour; self-play would bind" in lines[0]
    assert "64 simulations from 3,600,000 samples on, after 1.50 h: samples 900,000 an hour" in lines[1]
    assert [stage["num_simulations"] for stage in json.loads(json.dumps(estimate.values()))["stages"]] == [16, 32, 64]


def test_the_time_in_which_self_play_runs_ahead_is_told() -> None:
    reuse = dataclasses.replace(REUSE, slack=100_000)
    both = dataclasses.replace(sides(steps_per_s=5.0), at_once=AtOnce(900.0, 4.0))  # 388 samples a second more than are learned from
    text = "\n".join(estimated(stages=by_stages(both, reuse, [(0, 16)]), reuse=reuse).as_text())
    until = "until it is 100,000 samples ahead (learner.limiter_slack), after 0.07 h"
    assert f"{until}: samples 3,240,000 an hour, training steps 14,400" in text
    assert "at first" not in "\n".join(estimated().as_text())


def test_other_rules_have_no_published_curve() -> None:
    assert same_rules("hex", {"size": 7}, {"size": 7}) == ""
    assert "was published with" in same_rules("hex", {"size": 11}, {"size": 7})


@pytest.mark.parametrize("game", sorted({*names(), "nothing"}))
def test_published_levels_stand_in_the_docs(game: str) -> None:
    for point in points_of(game):
        file, _, anchor = point.place.removeprefix("docs/").partition("#")
        page = (DOCS / file).read_text("utf-8")
        titles = [line.lstrip("# ").lower() for line in page.splitlines() if line.startswith("#")]
        headings = [re.sub(r"[^a-z0-9 -]", "", title).replace(" ", "-") for title in titles]
        assert not anchor or anchor in headings
        figures = (point.samples, point.games)
        assert all(f"{figure:,}" in page or f"{figure / 1e6:.2f} M" in page for figure in figures if figure)
        assert point.samples or (point.minutes and point.cores)
