"""What lies near an arrangement, and how it is written as settings."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from azq.config import RunSections, dump_run, parse_run
from azq.config.loading import merge
from azq.tune.arrangement import Arrangement, axes_of, games_at_once, groups, layouts, leaves_axis

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
