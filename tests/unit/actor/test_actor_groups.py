"""Groups of games: any number of them, over one cache of evaluations."""

from __future__ import annotations

import numpy as np
import pytest
from actor_doubles import GAME, RUN, Table, after, sections

from azq.actor import Arenas, Stop
from azq.config import RunSections
from azq.wire.messages import GameRecord


@pytest.fixture
def table() -> Table:
    return Table()


def test_arenas_outlive_a_slice_and_follow_the_settings() -> None:
    arenas = Arenas()
    first = arenas.searches(GAME, sections(), 8)
    assert arenas.searches(GAME, sections(), 8) is first
    assert [search.num_slots for search in first] == [4, 4]
    second = arenas.searches(GAME, sections(), 9)
    assert [search.num_slots for search in second] == [5, 4]


def test_all_groups_share_a_cache_that_another_run_finds_empty(table: Table) -> None:
    memory = table.arenas.searches(GAME, sections(), 8, RUN)[0].memory_bytes
    assert table.arenas.memory_bytes > 2 * memory  # the cache is counted once
    first = table.play(should_stop=after(200)).progress.searched
    again = table.play(should_stop=after(200)).progress.searched
    assert 0 < first["cache_hits"] + first["merged_leaves"] < first["cache_lookups"]
    assert again["cache_hits"] > first["cache_hits"]
    other = table.arenas.searches(GAME, sections(), 8, "another run")
    packed, slots = np.zeros((4, GAME.packed_size()), np.uint8), np.zeros(4, np.int32)
    other[0].start(0, 1, np.zeros(0, np.uint16))
    assert other[0].collect(packed, slots) == 1  # the initial position, which the last run's games all knew


def first_leaf(arenas: Arenas, made_ms: int) -> bytes:
    """The first position that a new game's search asks for, packed; empty where it ended without."""
    search = arenas.searches(GAME, sections(), 8, (RUN, made_ms))[0]
    packed, slots = np.zeros((4, GAME.packed_size()), np.uint8), np.zeros(4, np.int32)
    search.start(0, 1, np.zeros(0, np.uint16))
    return packed[: search.collect(packed, slots)].tobytes()


@pytest.mark.parametrize(("made_ms", "known"), [(1, True), (2, False)])
def test_a_run_made_again_under_its_name_finds_the_cache_empty(table: Table, made_ms: int, known: bool) -> None:
    table.play(should_stop=after(200), made_ms=1)
    initial = first_leaf(Arenas(), made_ms=1)  # nothing is known there: the initial position itself
    assert (first_leaf(table.arenas, made_ms) != initial) == known


@pytest.mark.parametrize("groups", [1, 3, 5, 8])
def test_any_number_of_groups_plays_the_same_games(table: Table, groups: int) -> None:
    def games_of(settings: RunSections) -> dict[int, GameRecord]:
        here = Table()
        end = here.play(settings=settings, should_stop=lambda: len(here.events) >= 24)
        assert end.stop is Stop.ASKED
        assert here.all_in_the_pool()
        return {event.record.uid: event.record for event in here.events}

    expected, found = games_of(sections()), games_of(sections(groups=groups))
    common = expected.keys() & found.keys()
    assert len(common) >= 16
    assert all(found[uid] == expected[uid] for uid in common)
