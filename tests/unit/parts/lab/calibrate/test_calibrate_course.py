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
    Arrangement,
    Course,
    CoursePlan,
    Performance,
    TrialJudge,
    TunedChoice,
    axes_of,
    course,
    games_at_once,
    groups,
    layouts,
    leaves_axis,
    turns,
)
from azq.parts.lab.calibrate.rates import SampleReuse, Side

START = Arrangement(processes=1, threads=1, games=256, within_ms=25.0, groups=2, leaves=1)
arrangements = st.builds(
    Arrangement,
    processes=st.integers(1, 64),
    threads=st.integers(1, 16),
    games=st.integers(1, 2**20),
    within_ms=st.sampled_from([0.0, 10.0, 25.0]),
    groups=st.integers(1, 8),
    leaves=st.integers(1, 64),
)


def test_two_cores_have_three_layouts() -> None:
    assert {(each.processes, each.threads) for each in layouts(START, 2)} == {(1, 2), (2, 1)}


@settings(max_examples=30)
@given(now=arrangements, cores=st.integers(1, 128))
def test_what_lies_near_differs_and_can_be_set(now: Arrangement, cores: int) -> None:
    for axis in (*axes_of(cores), leaves_axis(64)):
        others = axis.others(now)
        assert now not in others
        assert len(set(others)) == len(others) <= 8
        for each in others:
            changed = merge(dump_run(RunSections()), each.sections())
            assert Arrangement.of(parse_run(changed, "test"), each.processes) == each
            assert each.processes * each.threads <= max(cores, now.processes * now.threads) or axis.name != "processes and threads"


def test_games_at_once_go_by_time_where_that_decides() -> None:
    assert [each.within_ms for each in games_at_once(START)] == [12.5, 50.0, 100.0, 0.0]
    assert [each.games for each in games_at_once(replace(START, within_ms=0.0))] == [64, 128, 512, 1024]


def test_no_group_is_empty() -> None:
    assert [each.groups for each in groups(START)] == [1, 3]
    assert [each.groups for each in groups(replace(START, games=1, groups=1))] == []


def test_changes_are_the_settings_that_differ() -> None:
    assert START.changes(START) == {}
    assert replace(START, processes=2, groups=3).changes(START) == {"worker": {"concurrency": 2}, "selfplay": {"groups": 3}}
    assert set(START.changes(None)) == {"worker", "selfplay", "search"}
    assert set(START.sections()) == {"selfplay", "search"}


START = Arrangement(processes=1, threads=1, games=256, within_ms=25.0, groups=2, leaves=1)
PLAN = CoursePlan(axes_of(4))
JUDGE = TrialJudge(
    cores=4, learner=Side(1000.0, 0.001), reuse=SampleReuse(1.0, 512), simulations=64.0, game_simulations=2000.0, longer=2.0
)  # with next to no learner, the run's samples are self-play's

Speed = Callable[[Arrangement], float]  # simulations per second


def performed(per_s: float, games: float = 100.0) -> Performance:
    return Performance(simulations_per_s=per_s, cpu_s=1e-9, evaluations_per_s=per_s, mean_batch=64.0, open_games=games)


def walked(
    speed: Speed, seed: int, noise: float, drift: float = 0.0, plan: CoursePlan = PLAN, games: Speed = lambda _: 100.0
) -> TunedChoice:
    """The course on a machine of that speed, whose figures vary, and which becomes slower or faster as time goes on."""
    draws, walk, number = random.Random(seed), course(START, plan, JUDGE), 0
    asked = next(walk)
    while True:
        factor = math.exp(draws.gauss(0.0, noise) + drift * number)
        number += 1
        try:
            asked = walk.send(performed(speed(asked) * factor, games(asked)))
        except StopIteration as end:
            found: TunedChoice = end.value
            return found


def test_what_is_faster_on_every_axis_is_found() -> None:
    def speed(each: Arrangement) -> float:
        layout = {(1, 2): 1.3, (2, 1): 1.2, (2, 2): 1.6}.get((each.processes, each.threads), 1.0)
        return 1000 * layout * {50.0: 1.1, 0.0: 0.7}.get(each.within_ms, 1.0) * {3: 1.2}.get(each.groups, 1.0)

    found = walked(speed, seed=1, noise=0.02)
    assert found.chosen == replace(START, processes=2, threads=2, within_ms=50.0, groups=3)
    assert found.ratio == pytest.approx(1.6 * 1.1 * 1.2, rel=0.05)
    assert found.p <= ALPHA
    assert not found.changes_nothing


def test_noise_alone_changes_nothing() -> None:
    changed = sum(not walked(lambda _: 1000.0, seed, noise=0.15).changes_nothing for seed in range(200))
    assert changed <= 0.05 * 200


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), noise=st.floats(0.0, 0.02), drift=st.floats(-0.01, 0.01))
def test_nothing_is_taken_that_is_slower_than_what_was_set_by_more_than_noise(seed: int, noise: float, drift: float) -> None:
    speeds: dict[Arrangement, float] = {START: 1000.0}
    draws = random.Random(seed)

    def speed(each: Arrangement) -> float:
        return speeds.setdefault(each, 1000.0 * draws.uniform(0.5, 1.5))

    found = walked(speed, seed, noise, drift)
    assert speed(found.chosen) >= speed(START) * (1 - 2 * noise)


@settings(max_examples=40)
@given(speeds=st.lists(st.floats(100.0, 10_000.0), min_size=40, max_size=40))
def test_without_noise_the_choice_is_as_fast_as_all_on_its_last_axis(speeds: list[float]) -> None:
    table: dict[Arrangement, float] = {}

    def speed(each: Arrangement) -> float:
        return table.setdefault(each, speeds[len(table) % len(speeds)])

    found = walked(speed, 0, 0.0)
    assert speed(found.chosen) >= speed(START)
    if not found.changes_nothing:
        assert math.log(speed(found.chosen)) >= max(math.log(speed(each)) for each in found.axes[-1].ratios) - math.log(1.03)


def test_a_drift_of_the_machine_changes_nothing() -> None:
    for drift in (-0.03, 0.03):
        assert walked(lambda _: 1000.0, 3, 0.0, drift).changes_nothing


def test_games_that_would_end_far_later_are_not_taken() -> None:
    def speed(each: Arrangement) -> float:
        return 1000 * (1.5 if each.within_ms == 0.0 else 1.0)

    found = walked(speed, 5, 0.01, games=lambda each: 4000.0 if each.within_ms == 0.0 else 100.0)
    axis = found.axes[1]
    assert found.chosen.within_ms == START.within_ms
    assert axis.too_long == {replace(START, within_ms=0.0)}


def test_leaves_are_taken_where_their_axis_is_asked_for() -> None:
    plan = CoursePlan((*axes_of(4), leaves_axis(64)))
    assert walked(lambda each: 1000 * each.leaves, 7, 0.01, plan=plan).chosen == replace(START, leaves=4)


def follow(walk: Course, answer: Callable[[Arrangement], Performance | None]) -> tuple[list[Arrangement], TunedChoice]:
    asked, order = next(walk), []
    while True:
        order.append(asked)
        try:
            asked = walk.send(answer(asked))
        except StopIteration as end:
            return order, end.value


def test_what_cannot_be_measured_is_left_out() -> None:
    _, found = follow(course(START, PLAN, JUDGE), lambda each: None if each.groups == 3 else performed(1000.0))
    assert all(each.groups != 3 for axis in found.axes for each in axis.ratios)
    assert found.changes_nothing


@pytest.mark.parametrize(("lost", "taken"), [(1, True), (2, True), (4, False)])
def test_a_test_bears_a_trial_that_stood_still_and_not_many(lost: int, taken: bool) -> None:
    """Eight pairs less two are enough, if all of them say so; four never are."""
    tries = 0

    def answer(each: Arrangement) -> Performance | None:
        nonlocal tries
        tries += each.groups == 3
        return None if each.groups == 3 and PLAN.rounds < tries <= PLAN.rounds + lost else performed(1200.0 if each.groups == 3 else 1000.0)

    _, found = follow(course(START, PLAN, JUDGE), answer)
    assert found.candidate == replace(START, groups=3)
    assert found.changes_nothing != taken


def test_what_does_not_fit_into_memory_is_never_measured() -> None:
    plan = CoursePlan(axes_of(4), fits=lambda each: each.processes == 1)
    order, _ = follow(course(START, plan, JUDGE), lambda each: performed(1000.0 * each.threads))
    assert {each.processes for each in order} == {1}
    assert any(each.threads == 4 for each in order)


def test_a_learner_that_binds_makes_all_alike() -> None:
    judge = replace(JUDGE, learner=Side(0.01, 0.1), reuse=SampleReuse(4.0, 512))
    _, found = follow(course(START, PLAN, judge), lambda each: performed(1e6 * each.threads))
    assert found.changes_nothing


def test_on_a_shared_machine_only_cpu_seconds_count() -> None:
    judge = replace(JUDGE, shared=True)
    slow, fast = performed(1000.0)._replace(cpu_s=2e-5), performed(10.0)._replace(cpu_s=1e-5)
    assert judge.score(fast) == pytest.approx(2 * judge.score(slow))


def test_rounds_of_two_go_there_and_back() -> None:
    other = replace(START, groups=3)
    names = {START: "A", other: "B"}
    assert "".join(names[each] for number in range(4) for each in turns([START, other], number)) == "ABBABAAB"


def test_as_many_trials_are_foretold_as_there_are_at_most() -> None:
    order, _ = follow(course(START, PLAN, JUDGE), lambda each: performed(1000.0 * each.groups))
    assert len(order) <= PLAN.trials(START) + 4
