"""The order of calls, shapes and errors of azq._core.Search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import NO_ACTIONS, Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq._core import Game, Search, SearchConfig
from azq.config import RunSections
from azq.config import SearchConfig as SearchSettings
from azq.errors import ConfigError, IllegalActionError
from azq.search.search import exploring
from azq.wire.arrays import KINDS, arrays_of, pack_record

SETTINGS = Settings("puct", 8)


@pytest.fixture
def search(connect_four: Game) -> Search:
    return Search(connect_four, SETTINGS.core(), num_slots=2, seed=1)


@pytest.fixture
def guided(connect_four: Game) -> Search:
    return Search(connect_four, SETTINGS.core(), num_slots=1, seed=1, autoplay=False)


def buffers(leaves: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((leaves, 11), np.uint8), np.zeros(leaves, np.int32)


def zeros(leaves: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((leaves, 7), np.float16), np.zeros((leaves, 1), np.float16)


def driver(search: Search) -> Driver:
    return Driver(search, packed_size=11, leaves_per_step=1, evaluate=HashEvaluator(7))


def test_collect_and_apply_alternate(search: Search) -> None:
    assert search.collect(*buffers(2)) == 0
    assert search.collect(*buffers(2)) == 0
    with pytest.raises(RuntimeError, match="no leaves are waiting"):
        search.apply(*zeros(0))
    search.start(1, 5, NO_ACTIONS)
    packed, slots = buffers(2)
    assert search.collect(packed, slots) == 1
    assert slots[0] == 1
    with pytest.raises(RuntimeError, match="wait for apply"):
        search.collect(packed, slots)
    search.apply(*zeros(1))
    assert search.collect(packed, slots) == 1


def test_a_slot_holds_still_while_its_leaf_is_out(search: Search) -> None:
    search.start(0, 5, NO_ACTIONS)
    search.collect(*buffers(2))
    for change in (lambda: search.start(0, 6, NO_ACTIONS), lambda: search.clear(0), lambda: search.run_uniform(10)):
        with pytest.raises(RuntimeError, match="apply"):
            change()
    search.start(1, 6, NO_ACTIONS)  # another slot may be filled meanwhile
    search.apply(*zeros(1))
    assert search.collect(*buffers(2)) == 2


def test_what_was_applied_counts_before_the_next_collect_and_is_nobody_elses_afterwards(connect_four: Game) -> None:
    packed, slots = buffers(2)
    seen = []
    for look in ("tree", "simulations", "not at all"):
        search = Search(connect_four, SETTINGS.core(), num_slots=2, seed=1)
        search.start(0, 5, NO_ACTIONS)
        search.start(1, 6, NO_ACTIONS)
        for done in range(5):
            logits, values = zeros(search.collect(packed, slots))
            values[:] = 0.5
            search.apply(logits, values)
            values[:] = np.nan  # the caller's again
            if look == "tree":
                assert search.tree(0)["visits"][0] == search.tree(1)["visits"][0] > 0
            elif look == "simulations":
                assert search.simulations == 2 * done
        search.clear(1)
        assert search.empty_slots() == [1]
        seen.append(search.tree(0)["q"])
    for other in seen[1:]:
        assert np.array_equal(seen[0], other, equal_nan=True)


def test_a_leaf_is_the_observation_of_the_tree(search: Search, connect_four: Game) -> None:
    search.start(0, 5, np.array([3, 3, 2], np.uint16))
    packed, slots = buffers(2)
    assert search.collect(packed, slots) == 1
    np.testing.assert_array_equal(packed[0], search.state(0).packed_observation())
    assert search.state(0).history() == [3, 3, 2]


def test_wrong_shapes_and_types_are_refused(search: Search) -> None:
    search.start(0, 5, NO_ACTIONS)
    with pytest.raises(ValueError, match=r"at least \(2, 11 or 12\)"):
        search.collect(np.zeros((1, 11), np.uint8), np.zeros(2, np.int32))
    with pytest.raises(ValueError, match=r"at least \(2, 11 or 12\)"):
        search.collect(np.zeros((2, 13), np.uint8), np.zeros(2, np.int32))
    with pytest.raises(TypeError):
        search.collect(np.zeros((2, 11), np.float32), np.zeros(2, np.int32))
    search.collect(*buffers(2))
    with pytest.raises(ValueError, match=r"logits of \(1, 7\)"):
        search.apply(*zeros(2))


def test_nan_is_refused_before_anything_changes(search: Search) -> None:
    search.start(0, 5, NO_ACTIONS)
    search.collect(*buffers(2))
    logits, values = zeros(1)
    with pytest.raises(ValueError, match="values holds NaN"):
        search.apply(logits, values + np.float16(np.nan))
    logits[0, 3] = np.nan
    with pytest.raises(ValueError, match="logits holds NaN"):
        search.apply(logits, values)
    search.apply(*zeros(1))


def test_infinite_logits_are_as_good_as_the_largest_finite_ones(guided: Search) -> None:
    guided.start(0, 5, NO_ACTIONS)
    guided.collect(*buffers(1))
    logits, values = zeros(1)
    logits[0, :3] = -np.inf
    guided.apply(logits, values)
    while leaves := guided.collect(*buffers(1)):
        guided.apply(*zeros(leaves))
    assert guided.result(0).prior_logits[:4].tolist() == [-65504.0] * 3 + [0.0]
    assert np.isfinite(guided.result(0).policy).all()


def test_every_float16_logit_arrives_exactly(tic_tac_toe: Game) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    patterns = patterns[np.isfinite(patterns.view(np.float16))]
    logits = np.resize(patterns, (math.ceil(len(patterns) / 9), 9)).view(np.float16)
    count = len(logits)
    config = Settings("gumbel", 1).core()
    search = Search(tic_tac_toe, config, num_slots=count, seed=1, autoplay=False)
    for slot in range(count):
        search.start(slot, slot, NO_ACTIONS)
    packed, slots = np.zeros((count, 3), np.uint8), np.zeros(count, np.int32)
    assert search.collect(packed, slots) == count
    search.apply(logits, np.zeros((count, 1), np.float16))
    assert search.collect(packed, slots) == count
    search.apply(np.zeros((count, 9), np.float16), np.zeros((count, 1), np.float16))
    assert search.collect(packed, slots) == 0
    found = np.stack([search.result(slot).prior_logits for slot in range(count)])
    np.testing.assert_array_equal(found, logits.astype(np.float32))


def test_an_illegal_record_leaves_the_slot_empty(search: Search) -> None:
    search.start(0, 5, NO_ACTIONS)
    with pytest.raises(IllegalActionError, match="action 7 is illegal at ply 1 of game 9; legal actions: 0, 1"):
        search.start(0, 9, np.array([3, 7], np.uint16))
    assert search.empty_slots() == [0, 1]
    with pytest.raises(RuntimeError, match="slot 0 is empty"):
        search.record(0)
    with pytest.raises(ValueError, match="root_values has 1 entries"):
        search.start(0, 9, np.array([3, 4], np.uint16), root_values=np.zeros((1, 1), np.float32))


def test_playing_from_outside(guided: Search) -> None:
    with pytest.raises(RuntimeError, match="slot 0 is empty"):
        guided.play(0, 3)
    guided.start(0, 5, NO_ACTIONS)
    with pytest.raises(RuntimeError, match="no spent search"):
        guided.result(0)
    driver(guided).run()
    assert guided.idle_slots() == [0]
    with pytest.raises(IllegalActionError, match="action 9 is illegal in slot 0 at ply 0"):
        guided.play(0, 9)
    guided.play(0, 3)
    assert guided.idle_slots() == []
    guided.play(0, 2)  # unsearched: no target
    record = guided.record(0)
    assert record.actions.tolist() == [3, 2]
    assert record.simulations.tolist() == [8, 0]
    assert not record.policies[1].any()
    assert guided.state(0).history() == [3, 2]
    with pytest.raises(RuntimeError, match="needs autoplay"):
        guided.run_uniform(10)


def test_in_autoplay_chance_follows_an_action_that_others_play() -> None:
    search = Search(games.load("backgammon"), SETTINGS.core(), num_slots=2, seed=1, autoplay=True)
    search.start(0, 5, NO_ACTIONS)
    dealt = search.record(0).actions.tolist()
    search.play(0, search.state(0).legal_actions()[0])
    assert search.record(0).actions.tolist()[: len(dealt)] == dealt
    assert not search.state(0).is_chance_node()
    assert not search.record(0).simulations.any()
    with pytest.raises(IndexError, match="slot 2"):
        search.clear(2)


def test_changed_slots_are_told_once_and_finished_ones_not(search: Search) -> None:
    search.start(0, 5, NO_ACTIONS)
    search.start(1, 6, NO_ACTIONS)
    assert search.changed_slots() == []
    drive = driver(search)
    while search.plies == 0:
        drive.step()
    changed = search.changed_slots()
    assert changed
    assert search.changed_slots() == []
    drive.run()
    assert search.finished_slots() == [0, 1]
    assert search.changed_slots() == []


def test_the_counters_count(search: Search) -> None:
    drive = driver(search)
    records = drive.play([1, 2])
    assert search.plies == sum(len(record.actions) for record in records)
    assert search.simulations >= sum(int(record.simulations.sum()) - len(record.actions) for record in records)
    assert 0 < search.evaluations < search.simulations + search.plies


def test_the_uniform_benchmark_counts_its_simulations(search: Search) -> None:
    assert search.run_uniform(1001) == 1001
    assert search.run_uniform(2000) == 2000
    assert search.simulations == 3001
    assert search.plies > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithm": "alphabeta"},
        {"num_simulations": 0},
        {"leaves_per_step": 0},
        {"max_considered_actions": 0},
        {"dirichlet_fraction": 1.5},
        {"dirichlet_alpha": 0.0},
        {"temperature": -1.0},
        {"gumbel_scale": -0.5},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_settings_are_configuration_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Settings(**{"algorithm": "puct", "num_simulations": 8, **wrong}).core()


@pytest.mark.parametrize(
    "wrong", [{"num_simulations": "8"}, {"reuse_subtree": 1}, {"c_puct": "many"}, {"c_visits": 1.0}, {"c_puct": math.nan}], ids=str
)
def test_a_setting_of_another_type_or_name_is_refused(wrong: dict[str, Any]) -> None:
    plain = {name: float(value) if isinstance(value, np.floating) else value for name, value in vars(SETTINGS).items()}
    with pytest.raises((TypeError, ConfigError), match=r"SearchConfig|c_puct"):
        SearchConfig(**{**plain, **wrong})
    with pytest.raises(TypeError, match="temperature"):
        SearchConfig(**{name: value for name, value in plain.items() if name != "temperature"})


def test_the_core_has_the_settings_of_a_run_and_no_defaults() -> None:
    run = RunSections().search.model_copy(update={"c_puct": 2.5, "reuse_subtree": False})
    for name, value in run.model_dump(exclude={"schedule"}).items():
        assert getattr(exploring(run), name) == value
    assert exploring(run, random_opening_plies=3).random_opening_plies == 3
    with pytest.raises(AttributeError, match="c_visits"):
        _ = exploring(run).c_visits


def test_a_search_needs_slots_and_threads(connect_four: Game) -> None:
    with pytest.raises(ConfigError, match="num_slots"):
        Search(connect_four, SETTINGS.core(), num_slots=0, seed=1)
    with pytest.raises(ConfigError, match="num_threads"):
        Search(connect_four, SETTINGS.core(), num_slots=1, seed=1, num_threads=0)


@pytest.mark.parametrize("game", ["connect_four", "blob"])
def test_a_packed_record_is_its_arrays(game: str) -> None:
    search = Search(games.load(game), exploring(SearchSettings(num_simulations=4)), num_slots=3, seed=1)
    search.run_uniform(100)
    record = search.record(1)
    packed = pack_record(record)
    assert len(record.actions) > 1
    assert bool(packed.support) == (game == "blob")  # where a few of many actions have an entry, only those travel
    for name, kind in KINDS.items():
        if name != "policies" or not packed.support:
            assert getattr(packed, name) == getattr(record, name).astype(kind).tobytes()
    whole = arrays_of(packed, record.policies.shape[1], record.root_values.shape[1], "the game")
    assert whole["policies"].tobytes() == record.policies.tobytes()


def test_an_array_of_a_record_is_nobody_elses(search: Search) -> None:
    search.start(0, 7, np.array([3, 3], np.uint16))
    record = search.record(0)
    record.actions[0] = 5
    assert record.actions.tolist() == [3, 3]
