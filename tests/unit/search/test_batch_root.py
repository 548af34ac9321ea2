"""Children of a root that are asked for in one step: the same games bit for bit, in fewer steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq._core import EvaluationCache, Search
from azq.config import RunSections
from azq.errors import ConfigError
from azq.search.portable import PortableSearch
from azq.search.search import Record, check_search, leaves_at_once, make_search
from azq.wire.arrays import KINDS

NIM = f"{Path(__file__).parents[2] / 'games' / 'nim.py'}:Nim"
PUCT, GUMBEL = Settings("puct", 24), Settings("gumbel", 24)
UIDS = [3, 4, 2**40 + 5]
CASES = {
    "gumbel": GUMBEL,
    "gumbel, no reuse": dataclasses.replace(GUMBEL, reuse_subtree=False),
    "gumbel, 3 considered": dataclasses.replace(GUMBEL, max_considered_actions=3),
    "gumbel, fewer simulations than candidates": dataclasses.replace(GUMBEL, num_simulations=4),
    "puct": PUCT,
    "puct, no reuse": dataclasses.replace(PUCT, reuse_subtree=False),
    "puct, fewer simulations than actions": dataclasses.replace(PUCT, num_simulations=5),
}


class Counted:
    """An evaluator that counts requests and what they hold."""

    def __init__(self, game: games.Game) -> None:
        self._evaluate = HashEvaluator(game.num_distinct_actions(), seed=4)
        self.requests = self.leaves = 0

    def __call__(self, packed: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        self.requests += 1
        self.leaves += len(packed)
        return self._evaluate(packed)


def played(name: str, settings: Settings, **sharing: Any) -> tuple[list[Record], Counted, Search | PortableSearch]:
    game = games.load(name)
    search = make_search(game, settings.core(), num_slots=len(UIDS), seed=6, **sharing)
    evaluate = Counted(game)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=leaves_at_once(settings.core(), game), evaluate=evaluate)
    return driver.play(UIDS), evaluate, search


def same(ours: list[Record], theirs: list[Record]) -> None:
    assert len(ours) == len(theirs) == len(UIDS)
    for one, other in zip(ours, theirs, strict=True):
        assert len(one.actions) > 0
        for field in KINDS:
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("name", ["connect_four", "tic_tac_toe", "othello", NIM], ids=["connect_four", "tic_tac_toe", "othello", "nim"])
def test_games_are_the_same_in_fewer_steps(name: str, settings: Settings) -> None:
    plain, asked, _ = played(name, settings)
    batched, asked_early, _ = played(name, dataclasses.replace(settings, batch_root=True))
    same(plain, batched)
    assert asked_early.leaves >= asked.leaves


@pytest.mark.parametrize(("settings", "share"), [(GUMBEL, 0.85), (PUCT, 0.95)], ids=["gumbel", "puct"])
def test_there_are_fewer_steps_and_under_gumbel_hardly_more_leaves(settings: Settings, share: float) -> None:
    settings = dataclasses.replace(settings, reuse_subtree=False)
    _, asked, _ = played("connect_four", settings)
    _, asked_early, _ = played("connect_four", dataclasses.replace(settings, batch_root=True))
    assert asked_early.requests < share * asked.requests
    if settings.algorithm == "gumbel":
        assert asked_early.leaves <= 1.02 * asked.leaves  # a root that is solved before all its candidates were visited wastes some


@pytest.mark.parametrize("settings", [GUMBEL, PUCT], ids=["gumbel", "puct"])
@pytest.mark.parametrize("merge", [False, True], ids=["", "merged"])
def test_the_cache_knows_early_leaves_too(settings: Settings, merge: bool) -> None:
    game = games.load("connect_four")
    early = dataclasses.replace(settings, batch_root=True)
    plain, _, _ = played("connect_four", settings, merge_symmetries=merge)
    cached, asked, search = played("connect_four", early, cache=EvaluationCache(game, 2**14), merge_symmetries=merge)
    same(plain, cached)
    assert search.cache_hits > 0
    assert asked.leaves == search.evaluations


def test_threads_change_nothing() -> None:
    early = dataclasses.replace(GUMBEL, batch_root=True)
    game = games.load("connect_four")
    same(played("connect_four", early)[0], played("connect_four", early, num_threads=3, cache=EvaluationCache(game, 2**14))[0])


def test_an_action_that_no_simulation_came_to_begins_a_new_tree() -> None:
    """An opponent plays a child that was evaluated early and never visited: its first evaluation is the root's, as without."""
    game, results = games.load("connect_four"), []
    for early in (False, True):
        settings = dataclasses.replace(PUCT, num_simulations=8, c_puct=0.01, fpu_reduction=1.0, dirichlet_fraction=0.0, batch_root=early)
        search = Search(game, settings.core(), num_slots=1, seed=1, autoplay=False)
        driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=8, evaluate=HashEvaluator(7, seed=2))
        search.start(0, 1, np.zeros(0, np.uint16))
        driver.run()
        unvisited = int(np.argmin(search.result(0).visit_counts))
        assert search.result(0).visit_counts[unvisited] == 0
        search.play(0, unvisited)
        driver.run()
        results.append(search.result(0))
    np.testing.assert_array_equal(results[0].visit_counts, results[1].visit_counts)
    np.testing.assert_array_equal(results[0].q_values, results[1].q_values)


@pytest.mark.parametrize("name", ["backgammon", "blob", "beasty_bar"])
def test_games_of_chance_and_secrets_refuse_it(name: str) -> None:
    search = RunSections().search.model_copy(update={"batch_root": True})
    with pytest.raises(ConfigError, match=rf"search\.batch_root is of games in which nothing is hidden.* {name} is none; set it to false"):
        check_search(search, games.load(name))
    with pytest.raises(ConfigError, match="batch_root and decisive_moves must be false"):
        Search(games.load(name), dataclasses.replace(GUMBEL, batch_root=True).core(), num_slots=1, seed=1)


def test_buffers_hold_the_children() -> None:
    game = games.load("othello")
    assert leaves_at_once(GUMBEL.core(), game) == 1
    assert leaves_at_once(dataclasses.replace(GUMBEL, batch_root=True, max_considered_actions=5).core(), game) == 5
    assert leaves_at_once(dataclasses.replace(PUCT, batch_root=True).core(), game) == 24
    assert leaves_at_once(dataclasses.replace(PUCT, batch_root=True, num_simulations=999).core(), game) == game.num_distinct_actions()
    search = Search(game, dataclasses.replace(GUMBEL, batch_root=True).core(), num_slots=2, seed=1)
    with pytest.raises(ValueError, match=r"packed of at least \(32,"):
        search.collect(np.zeros((2, game.packed_size()), np.uint8), np.zeros(2, np.int32))
