"""What two sides of a run come to together."""

from __future__ import annotations

import dataclasses

import pytest
from estimated_sides import REUSE, sides
from hypothesis import given
from hypothesis import strategies as st

from azq.config import parse_run
from azq.host.devices import DevicePlan
from azq.parts.lab.calibrate.measure import GAMES, game_size, needs_of
from azq.parts.lab.calibrate.rates import (
    CORES,
    DEVICE,
    LEARNER,
    OVERHEAD_CORES,
    TIGHT,
    AtOnce,
    Need,
    SampleReuse,
    TwoSides,
    advice,
    by_stages,
    fits,
    hours_until,
    limits,
    rates,
    rates_ahead,
    total,
    tree_bytes,
)
from azq.presets import preset


def test_the_slower_side_binds() -> None:
    found = rates(sides(), REUSE)
    assert (found.binds, found.samples, found.steps) == ("self-play", 3_600_000, 28_125)
    assert (found.games, found.evaluations, found.simulations, found.disk_bytes) == (180_000, 108e6, 144e6, 90e6)
    found = rates(sides(steps_per_s=5.0), REUSE)
    assert (found.binds, found.steps, found.samples) == ("the learner", 18_000, 5 * 128 * 3600)


def test_sides_that_share_few_cores_are_bound_by_them() -> None:
    found = rates(sides(cores=1), REUSE)
    each = 0.001 + 0.1 / 128  # CPU-seconds of a sample and the training that it allows
    assert found.binds == CORES
    assert found.samples == pytest.approx(3600 * (1 - OVERHEAD_CORES) / each)
    assert found.cores == pytest.approx(1.0)
    assert found.samples_per_cpu_s == pytest.approx(1 / each)


def test_one_device_takes_them_in_turn() -> None:
    found = rates(sides(steps_per_s=1000 / 128, one_device=True), REUSE)
    assert (found.binds, found.samples) == (DEVICE, pytest.approx(500 * 3600))


def test_games_are_unknown_where_too_few_ended() -> None:
    found = rates(dataclasses.replace(sides(), game_samples=None), REUSE)
    assert (found.games, found.disk_bytes, found.samples) == (None, None, 3_600_000)


@given(st.floats(1, 1e6), st.floats(0.01, 1e4), st.integers(1, 256), st.booleans(), st.floats(0.1, 64), st.integers(1, 4096))
def test_nothing_goes_faster_than_any_of_its_limits(play: float, steps: float, cores: int, one: bool, reused: float, batch: int) -> None:
    both, reuse = sides(play, steps, cores, one), SampleReuse(reused, batch)
    found = rates(both, reuse)
    assert found.samples == pytest.approx(3600 * min(limits(both, reuse).values()))
    assert found.samples <= 3600 * play * (1 + 1e-9)
    assert found.steps <= 3600 * steps * (1 + 1e-9)


def test_a_stage_of_more_simulations_takes_self_play_longer_and_the_learner_not() -> None:
    stages = by_stages(sides(steps_per_s=5.0), REUSE, [(0, 16), (1_000_000, 64)])  # the learner alone would make 640 samples a second
    assert [(stage.rates.binds, stage.rates.samples) for stage in stages] == [("the learner", 2_304_000), ("self-play", 900_000)]
    assert [stage.rates.simulations / stage.rates.samples for stage in stages] == pytest.approx([40, 160])


@given(st.lists(st.integers(1, 10**7), max_size=5, unique=True).map(sorted), st.floats(0, 1e8), st.floats(0, 1e8))
def test_hours_grow_with_samples_and_lie_between_those_of_the_fastest_and_the_slowest_stage(
    begins: list[int], one: float, other: float
) -> None:
    budgets = [(begin, 16 * (index + 2)) for index, begin in enumerate(begins)]
    stages = by_stages(sides(), REUSE, [(0, 16), *budgets])
    sooner, later = sorted((one, other))
    assert hours_until(sooner, stages, REUSE) <= hours_until(later, stages, REUSE)
    fastest, slowest = stages[0].rates.samples, stages[-1].rates.samples
    assert later / fastest * (1 - 1e-9) <= hours_until(later, stages, REUSE) <= later / slowest * (1 + 1e-9)


def at_once(played: float, trained: float, **changes: object) -> TwoSides:
    return dataclasses.replace(sides(**changes), at_once=AtOnce(played, trained))  # type: ignore[arg-type]


def test_who_waits_frees_the_other_of_part_of_what_slows_it() -> None:
    found = rates(at_once(900.0, 4.0, steps_per_s=5.0), REUSE)  # beside self-play 512 samples a second, alone 640
    waits = 1 - found.samples / 3600 / 900.0
    assert found.binds == LEARNER
    assert found.samples / 3600 == pytest.approx(640 - (640 - 512) * (1 - waits))
    found = rates(at_once(250.0, 4.0, steps_per_s=5.0), REUSE)  # self-play is the slower one, and half as fast beside a learner
    assert (found.binds, found.samples < 500 * 3600) == (CORES, True)


@given(st.floats(1, 1e6), st.floats(0.01, 1e4), st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.floats(0.1, 64), st.integers(1, 4096))
def test_tied_sides_lie_between_the_slower_one_beside_the_other_and_alone(
    play: float, steps: float, play_kept: float, steps_kept: float, reused: float, batch: int
) -> None:
    reuse = SampleReuse(reused, batch)
    both = at_once(play * play_kept, steps * steps_kept, selfplay_per_s=play, steps_per_s=steps, cores=10**12)
    found = rates(both, reuse).samples / 3600
    assert min(play * play_kept, steps * steps_kept / reuse.steps) * (1 - 1e-9) <= found <= min(play, steps / reuse.steps) * (1 + 1e-9)


def test_self_play_runs_ahead_by_its_slack_first() -> None:
    reuse = dataclasses.replace(REUSE, slack=100_000)
    (stage,) = by_stages(at_once(900.0, 4.0, steps_per_s=5.0), reuse, [(0, 16)])
    assert stage.ahead is not None
    assert (stage.ahead.samples, stage.ahead.steps, stage.ahead.binds) == (pytest.approx(900 * 3600), pytest.approx(4 * 3600), CORES)
    tied_s = 100_000 / (900 - 512)
    samples = 900 * tied_s
    assert hours_until(samples / 2, [stage], reuse) == pytest.approx(tied_s / 2 / 3600)
    assert hours_until(samples + stage.rates.samples, [stage], reuse) == pytest.approx(tied_s / 3600 + 1)
    later = by_stages(at_once(900.0, 4.0, steps_per_s=5.0), reuse, [(0, 16), (int(samples / 2), 17)])
    assert hours_until(2 * samples, later, reuse) > hours_until(2 * samples, [stage], reuse)  # nothing is gained twice


def test_a_learner_that_keeps_up_lets_nobody_run_ahead() -> None:
    assert rates_ahead(at_once(250.0, 4.0, steps_per_s=5.0), dataclasses.replace(REUSE, slack=100_000)) is None
    assert rates_ahead(at_once(900.0, 4.0, steps_per_s=5.0), REUSE) is None  # it may not
    assert rates_ahead(sides(steps_per_s=5.0), dataclasses.replace(REUSE, slack=100_000)) is None  # nobody measured


def test_sides_that_run_ahead_on_few_cores_leave_some_to_the_rest() -> None:
    ahead = rates_ahead(at_once(900.0, 4.0, steps_per_s=5.0, cores=1), dataclasses.replace(REUSE, slack=100_000))
    assert ahead is not None
    share = (1 - OVERHEAD_CORES) / (0.9 + 0.4)
    assert (ahead.samples / 3600, ahead.steps / 3600) == (pytest.approx(900 * share), pytest.approx(4 * share))


def test_what_is_gained_in_a_stage_counts_in_the_next() -> None:
    reuse = dataclasses.replace(REUSE, slack=1000)
    first, second = by_stages(at_once(900.0, 4.0, steps_per_s=5.0), reuse, [(0, 16), (900, 24)])
    assert second.rates.evaluations / second.rates.samples == pytest.approx(45)
    assert second.ahead is not None
    assert second.ahead.samples / 3600 == pytest.approx(600)
    left_s = (1000 - 388) / (600 - 512)  # a second of the first stage gains 388
    wanted_s = 1 + left_s + 100 / (second.rates.samples / 3600)
    assert 3600 * hours_until(900 + 600 * left_s + 100, [first, second], reuse) == pytest.approx(wanted_s)
    waiting = by_stages(sides(), reuse, [(0, 16)])  # nobody measured both at once
    assert hours_until(3_600_000, waiting, reuse) == pytest.approx(1)


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
