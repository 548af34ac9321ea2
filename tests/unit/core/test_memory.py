"""A search's memory is fixed when it is made, and trees stay within it."""

from __future__ import annotations

import pytest
from reference.config import Settings
from reference.driver import NO_ACTIONS, Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq._core import Game, Search


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_a_thousand_trees_fit(algorithm: str, connect_four: Game) -> None:
    search = Search(connect_four, Settings(algorithm, 200).core(), num_slots=1024, seed=1)
    assert search.memory_bytes < 120e6


def test_trees_hold_what_they_need_and_move_when_they_outgrow_it() -> None:
    """Othello has positions with thirty legal actions, yet few of them; in gomoku nearly every cell is open."""
    growth = {}
    for name in ("othello", "gomoku"):
        search = Search(games.load(name), Settings("gumbel", 64).core(), num_slots=32, seed=1)
        fresh = search.memory_bytes
        search.run_uniform(32 * 64 * 20)
        growth[name] = search.memory_bytes / fresh
        if name == "gomoku":
            again = search.memory_bytes
            search.run_uniform(32 * 64 * 20)
            assert search.memory_bytes == again  # later games use the same blocks
    assert growth["othello"] < 1.5
    assert 2.0 < growth["gomoku"] < 3.1


@pytest.mark.parametrize(
    "settings",
    [
        Settings("puct", 50),
        Settings("gumbel", 50),
        Settings("gumbel", 50, max_considered_actions=1),  # every visit below one child: the case that trimming is for
        Settings("gumbel", 50, leaves_per_step=5),
    ],
    ids=["puct", "gumbel", "gumbel in a chain", "gumbel with 5 leaves"],
)
def test_kept_subtrees_do_not_grow_without_bound(settings: Settings, connect_four: Game) -> None:
    search = Search(connect_four, settings.core(), num_slots=1, seed=1, autoplay=False)
    driver = Driver(search, packed_size=11, leaves_per_step=settings.leaves_per_step, evaluate=HashEvaluator(7, spread=9.0))
    bound = settings.num_simulations + 1 if settings.algorithm == "puct" else 2 * settings.num_simulations + 1
    largest = 0
    for uid in range(5):
        search.start(0, uid, NO_ACTIONS)
        while 0 not in search.finished_slots():
            driver.run()
            largest = max(largest, len(search.tree(0)["parent"]))
            search.play(0, search.result(0).action)
    assert largest <= bound
    assert largest > settings.num_simulations // 2


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
@pytest.mark.parametrize(("name", "params"), [("blob", {"players": 4, "cards": 4}), ("beasty_bar", {"players": 3})])
def test_a_simulation_through_hidden_hands_adds_a_bounded_number_of_nodes(name: str, params: dict[str, int], algorithm: str) -> None:
    game = games.load(name, **params)
    search = Search(game, Settings(algorithm, 40).core(), num_slots=8, seed=4)
    evaluate = HashEvaluator(game.num_distinct_actions(), seed=6, value_size=game.value_size(), spread=9.0)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate)
    for slot in range(8):
        search.start(slot, slot, NO_ACTIONS)
    largest = 0
    while driver.step():
        largest = max(largest, *(len(search.tree(slot)["parent"]) for slot in range(8)))
    assert 41 < largest <= 1 + 40 * 3 * game.num_players()
