"""Memory before it is taken, and the setting that makes it fit."""

from __future__ import annotations

import pytest

from azq.config import parse_run
from azq.estimate.lengths import GAMES, game_size
from azq.estimate.measure import needs_of
from azq.estimate.memory import TIGHT, Need, advice, fits, total, tree_bytes
from azq.host.devices import DevicePlan
from azq.presets import preset

GB = 10**9
WINDOW = Need("the window", 8 * GB, "learner.max_window", 1_000_000)
TREES = Need("trees", 2 * GB, "selfplay.games_in_flight", 1024)
NETWORK = Need("network", 1 * GB)


def test_what_fits_needs_no_advice() -> None:
    assert fits([WINDOW, TREES, NETWORK], 14 * GB)
    assert advice([WINDOW, TREES, NETWORK], 14 * GB) == ""


def test_the_largest_thing_is_made_smaller_so_that_all_fits() -> None:
    usable = 10 * GB
    said = advice([TREES, WINDOW, NETWORK], usable)
    assert said.endswith("set learner.max_window=625000 or less")
    assert fits([TREES, Need("the window", 8 * GB * 625 // 1000), NETWORK], usable)
    assert "11.00 GB of 10.00 GB" in said


def test_where_one_setting_is_not_enough_all_are_named() -> None:
    said = advice([WINDOW, TREES, NETWORK], 2 * GB)
    assert "lower several of learner.max_window, selfplay.games_in_flight" in said
    assert "no setting alone" in advice([Need("network", 9 * GB)], GB)


def test_trees_grow_with_simulations_and_actions() -> None:
    assert tree_bytes(200, 7) > 3 * tree_bytes(64, 7)
    assert tree_bytes(64, 70) > 5 * tree_bytes(64, 7)


@pytest.mark.parametrize("game", ["connect_four", "tic_tac_toe"])
def test_needs_follow_their_settings(game: str) -> None:
    def needs(**sections: dict[str, int]) -> dict[str, int]:
        values = preset(game)
        for name, section in sections.items():
            values[name] = values.get(name, {}) | section
        found = needs_of(parse_run(values, "test"), DevicePlan(("cpu",), ("cpu",), 1, 1, "", {}), None)
        return {need.setting or need.what: need.amount for need in found}

    usual = needs()
    assert all(amount > 0 for amount in usual.values())
    games = parse_run(preset(game), "test").selfplay.games_in_flight
    assert needs(selfplay={"games_in_flight": 2 * games})["selfplay.games_in_flight"] == 2 * usual["selfplay.games_in_flight"]
    window = parse_run(preset(game), "test").learner.max_window
    assert needs(learner={"max_window": 3 * window})["learner.max_window"] == 3 * usual["learner.max_window"]
    assert needs(search={"num_simulations": 400})["selfplay.games_in_flight"] > 2 * usual["selfplay.games_in_flight"]
    assert needs(network={"channels": 256})["the network with its optimizer"] > usual["the network with its optimizer"]
    assert total([Need("a", 1), Need("b", 2)]) == 3
    assert TIGHT < 1


def test_games_are_measured_to_their_end() -> None:
    size = game_size(parse_run(preset("tic_tac_toe"), "test"), 60.0)
    assert size is not None
    assert 5 <= size.plies <= 9
    assert size.plies - 1 <= size.samples <= size.plies  # at most one random ply is no sample
    assert size.record_bytes > 100


def test_games_that_begin_in_the_middle_of_others_are_shorter() -> None:
    sections = parse_run(preset("tic_tac_toe"), "test")
    forked = sections.model_copy(update={"selfplay": sections.selfplay.model_copy(update={"fork_share": 0.5})})
    whole, size = game_size(sections, 60.0), game_size(forked, 60.0)
    assert whole is not None
    assert size is not None
    assert size.samples == pytest.approx(0.75 * whole.samples)
    assert size.samples / size.plies == pytest.approx(whole.samples / whole.plies)
    assert size.record_bytes == pytest.approx(whole.record_bytes, rel=0.05)


def test_too_short_a_time_says_nothing_of_lengths() -> None:
    assert game_size(parse_run(preset("tic_tac_toe"), "test"), 0.0) is None
    assert GAMES > 0
