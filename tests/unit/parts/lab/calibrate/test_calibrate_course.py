"""The course of trials on machines that are made up: what is faster is taken, noise is not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.config import RunSections, dump_run, parse_run
from azq.config.loading import merge
from azq.parts.lab.calibrate.course import (
    ALPHA,
    ROUNDS,
    Arrangement,
    Measure,
    Performance,
    TrialJudge,
    TunedChoice,
    axes_of,
    games_at_once,
    groups,
    layouts,
    trials,
    tuned,
    turns,
)
from azq.parts.lab.calibrate.rates import SampleReuse, Side

START = Arrangement(processes=1, threads=1, games=256, within_ms=25.0, groups=2)
arrangements = st.builds(
    Arrangement,
    processes=st.integers(1, 64),
    threads=st.integers(1, 16),
    games=st.integers(1, 2**20),
    within_ms=st.sampled_from([0.0, 10.0, 25.0]),
    groups=st.integers(1, 8),
)
JUDGE = TrialJudge(cores=4, learner=Side(1000.0, 0.001), reuse=SampleReuse(1.0, 512), simulations=64.0)  # with next to no learner
Speed = Callable[[Arrangement], float]  # simulations per second


def performed(per_s: float) -> Performance:
    return Performance(simulations_per_s=per_s, cpu_s=1e-9)


def whatever(_: Arrangement) -> bool:
    return True


def noted(
    measure: Measure, judge: TrialJudge = JUDGE, fits: Callable[[Arrangement], bool] = whatever
) -> tuple[list[Arrangement], TunedChoice]:
    order: list[Arrangement] = []

    def trial(arrangement: Arrangement) -> Performance | None:
        order.append(arrangement)
        return measure(arrangement)

    return order, tuned(START, judge, trial, fits)


def walked(speed: Speed, seed: int, noise: float, drift: float = 0.0) -> TunedChoice:
    """The course on a machine of that speed, whose figures vary, and which becomes slower or faster as time goes on."""
    draws, done = random.Random(seed), [0]

    def measure(arrangement: Arrangement) -> Performance:
        done[0] += 1
        return performed(speed(arrangement) * math.exp(draws.gauss(0.0, noise) + drift * (done[0] - 1)))

    return tuned(START, JUDGE, measure, whatever)


@settings(max_examples=30)
@given(now=arrangements, cores=st.integers(1, 128))
def test_what_lies_near_differs_and_can_be_set(now: Arrangement, cores: int) -> None:
    for axis in axes_of(cores):
        others = axis(now)
        assert now not in others
        assert len(set(others)) == len(others) <= 8
        for each in others:
            changed = merge(dump_run(RunSections()), {"selfplay": each.selfplay()})
            assert Arrangement.of(parse_run(changed, "test"), each.processes) == each
            assert each.processes * each.threads <= max(cores, now.processes * now.threads)
            assert each.games * (each.within_ms or 1) <= 2 * now.games * (now.within_ms or 1)


def test_what_lies_near_in_figures() -> None:
    assert {(each.processes, each.threads) for each in layouts(START, 2)} == {(1, 2), (2, 1)}
    assert [each.within_ms for each in games_at_once(START)] == [6.25, 12.5, 50.0]
    assert [each.games for each in games_at_once(replace(START, within_ms=0.0))] == [64, 128, 512]
    assert [each.groups for each in groups(START)] == [1, 3]
    assert groups(replace(START, games=1, groups=1)) == []
    assert replace(START, processes=2, groups=3).changes(START) == {"worker": {"concurrency": 2}, "selfplay": {"groups": 3}}


def test_what_is_faster_on_every_axis_is_found() -> None:
    def speed(each: Arrangement) -> float:
        layout = {(1, 2): 1.3, (2, 1): 1.2, (2, 2): 1.6}.get((each.processes, each.threads), 1.0)
        return 1000 * layout * {50.0: 1.1, 6.25: 0.7}.get(each.within_ms, 1.0) * {3: 1.2}.get(each.groups, 1.0)

    found = walked(speed, seed=1, noise=0.02)
    assert found.chosen == replace(START, processes=2, threads=2, within_ms=50.0, groups=3)
    assert found.ratio == pytest.approx(1.6 * 1.1 * 1.2, rel=0.05)
    assert found.p <= ALPHA
    assert found.ratios[START] == 1.0
    assert found.ratios[replace(START, processes=2, threads=2)] == pytest.approx(1.6, rel=0.05)


def test_noise_alone_changes_nothing() -> None:
    assert sum(walked(lambda _: 1000.0, seed, noise=0.15).chosen != START for seed in range(200)) <= 0.05 * 200


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), noise=st.floats(0.0, 0.02), drift=st.floats(-0.01, 0.01))
def test_nothing_is_taken_that_is_slower_than_what_was_set_by_more_than_noise(seed: int, noise: float, drift: float) -> None:
    speeds: dict[Arrangement, float] = {START: 1000.0}
    draws = random.Random(seed)

    def speed(each: Arrangement) -> float:
        return speeds.setdefault(each, 1000.0 * draws.uniform(0.5, 1.5))

    found = walked(speed, seed, noise, drift)
    assert speed(found.chosen) >= speed(START) * (1 - 2 * noise)


@pytest.mark.parametrize("drift", [-0.03, 0.03])
def test_a_drift_of_the_machine_changes_nothing(drift: float) -> None:
    assert walked(lambda _: 1000.0, 3, 0.0, drift).chosen == START


def test_what_cannot_be_measured_is_left_out() -> None:
    _, found = noted(lambda each: None if each.groups == 3 else performed(1000.0))
    assert all(each.groups != 3 for each in found.ratios)
    assert found.chosen == found.candidate == START


@pytest.mark.parametrize(("lost", "taken"), [(1, True), (2, True), (4, False)])
def test_a_test_bears_a_trial_that_stood_still_and_not_many(lost: int, taken: bool) -> None:
    """Eight pairs less two are enough, if all of them say so; four never are."""
    tries = 0

    def answer(each: Arrangement) -> Performance | None:
        nonlocal tries
        tries += each.groups == 3
        return None if each.groups == 3 and ROUNDS < tries <= ROUNDS + lost else performed(1200.0 if each.groups == 3 else 1000.0)

    _, found = noted(answer)
    assert found.candidate == replace(START, groups=3)
    assert (found.chosen == found.candidate) == taken


def test_what_does_not_fit_into_memory_is_never_measured() -> None:
    order, _ = noted(lambda each: performed(1000.0 * each.threads), fits=lambda each: each.processes == 1)
    assert {each.processes for each in order} == {1}
    assert any(each.threads == 4 for each in order)


def test_a_learner_that_binds_makes_all_alike() -> None:
    judge = replace(JUDGE, learner=Side(0.01, 0.1), reuse=SampleReuse(4.0, 512))
    assert noted(lambda each: performed(1e6 * each.threads), judge)[1].chosen == START


def test_rounds_of_two_go_there_and_back() -> None:
    other = replace(START, groups=3)
    names = {START: "A", other: "B"}
    assert "".join(names[each] for number in range(4) for each in turns([START, other], number)) == "ABBABAAB"


def test_as_many_trials_are_foretold_as_there_are_at_most() -> None:
    order, _ = noted(lambda each: performed(1000.0 * each.groups))
    assert len(order) <= trials(START, JUDGE.cores, whatever) + 4
