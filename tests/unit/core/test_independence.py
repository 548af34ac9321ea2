"""A game's course depends on its key and its evaluations alone: not on threads, neighbours, processes or who began it."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator
from waiting import PATIENCE_S

from azq import games
from azq._core import Game, Search
from azq.search.search import Record

PUCT = Settings("puct", 30)
GUMBEL = Settings("gumbel", 30)
FIELDS = ("actions", "policies", "root_values", "simulations", "weight_versions", "returns")


def drive(search: Search, settings: Settings) -> Driver:
    game = games.load("connect_four")
    return Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=HashEvaluator(7))


def play(settings: Settings, uids: list[int], *, num_threads: int = 1) -> list[Record]:
    game = games.load("connect_four")
    search = Search(game, settings.core(), num_slots=len(uids), seed=9, num_threads=num_threads)
    return drive(search, settings).play(uids)


def assert_same(found: Record, expected: Record) -> None:
    assert found.uid == expected.uid
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field), err_msg=field)


@pytest.mark.parametrize("settings", [PUCT, GUMBEL, Settings("puct", 30, leaves_per_step=3)], ids=["puct", "gumbel", "3 leaves"])
def test_the_number_of_threads_changes_nothing(settings: Settings) -> None:
    uids = list(range(40))
    alone = play(settings, uids)
    for num_threads in (2, 3):
        for found, expected in zip(play(settings, uids, num_threads=num_threads), alone, strict=True):
            assert_same(found, expected)


def test_a_game_does_not_see_its_neighbours_or_its_slot() -> None:
    together = play(PUCT, [5, 6, 7, 8])
    assert_same(play(PUCT, [7])[0], together[2])
    assert_same(play(PUCT, [1, 8, 3])[1], together[3])


def test_uids_and_seeds_make_different_games() -> None:
    games_played = {tuple(record.actions) for record in play(PUCT, list(range(20)))}
    assert len(games_played) == 20


@pytest.mark.parametrize("settings", [PUCT, GUMBEL], ids=["puct", "gumbel"])
def test_an_adopted_game_goes_on_as_the_first_worker_would_have(settings: Settings, connect_four: Game) -> None:
    settings = Settings(settings.algorithm, 30, reuse_subtree=False, random_opening_plies=2)
    whole = max(play(settings, list(range(70, 80))), key=lambda record: len(record.actions))
    assert len(whole.actions) > 12
    for plies in (0, 1, 2, 3, len(whole.actions) - 1):
        search = Search(connect_four, settings.core(), num_slots=2, seed=9)
        search.start(
            1,
            whole.uid,
            whole.actions[:plies],
            whole.policies[:plies],
            whole.root_values[:plies],
            whole.simulations[:plies],
            whole.weight_versions[:plies],
        )
        drive(search, settings).run()
        assert search.finished_slots() == [1]
        assert_same(search.record(1), whole)


def test_a_game_adopted_at_its_end_is_finished_at_once(connect_four: Game) -> None:
    whole = play(PUCT, [1])[0]
    search = Search(connect_four, PUCT.core(), num_slots=1, seed=9)
    search.start(0, 1, whole.actions)
    assert search.finished_slots() == [0]
    assert search.record(0).terminal
    assert not search.record(0).simulations.any()


def _play_in_child(queue: multiprocessing.Queue[list[int]], search: Search) -> None:
    queue.put([record.actions.tolist() for record in drive(search, PUCT).play(range(16))])


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_threads_start_anew_after_a_fork(connect_four: Game) -> None:
    search = Search(connect_four, PUCT.core(), num_slots=16, seed=9, num_threads=2)
    expected = [record.actions.tolist() for record in drive(search, PUCT).play(range(16))]
    for slot in range(16):
        search.clear(slot)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_play_in_child, args=(queue, search))
    child.start()
    assert queue.get(timeout=PATIENCE_S) == expected
    child.join(timeout=PATIENCE_S)
    assert child.exitcode == 0
