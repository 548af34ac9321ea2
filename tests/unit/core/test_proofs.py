"""Exact values: never wrong, never searched again, and the search stops for them."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq._core import Game, Search, State

ALGORITHMS = ["puct", "gumbel"]


@functools.cache
def exact_value(history: frozenset[int], second: frozenset[int]) -> int:
    """Player 0's value of a tic-tac-toe position given both players' cells, by exhaustive search."""
    lines = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
    for cells, value in ((history, 1), (second, -1)):
        if any(cells.issuperset(line) for line in lines):
            return value
    free = set(range(9)) - history - second
    if not free:
        return 0
    if len(history) == len(second):
        return max(exact_value(history | {cell}, second) for cell in free)
    return min(exact_value(history, second | {cell}) for cell in free)


def value_after(actions: list[int]) -> int:
    return exact_value(frozenset(actions[::2]), frozenset(actions[1::2]))


def random_position(game: Game, rng: random.Random, plies: int) -> State:
    while True:
        state = game.new_initial_state()
        for _ in range(plies):
            if not state.is_terminal():
                state.apply_action(rng.choice(state.legal_actions()))
        if not state.is_terminal():
            return state


def solve(game: Game, settings: Settings, actions: list[int]) -> Search:
    search = Search(game, settings.core(), num_slots=1, seed=3, autoplay=False)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=HashEvaluator(9, seed=1))
    search.start(0, 5, np.array(actions, np.uint16))
    driver.run()
    return search


@pytest.mark.parametrize("leaves", [1, 4])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_proven_is_true_and_what_is_played_keeps_it(algorithm: str, leaves: int, tic_tac_toe: Game) -> None:
    rng = random.Random(6)
    proven = 0
    for number in range(120):
        history = random_position(tic_tac_toe, rng, number % 7).history()
        search = solve(tic_tac_toe, Settings(algorithm, 400, leaves_per_step=leaves), history)
        result = search.result(0)
        tree = search.tree(0)
        assert (tree["lower"] <= tree["upper"]).all()
        if not result.proven:
            continue
        proven += 1
        sign = 1 if len(history) % 2 == 0 else -1
        assert result.root_value == sign * value_after(history)
        best = [action for action in range(9) if result.policy[action] > 0]
        assert result.action in best
        assert result.best_action in best
        np.testing.assert_allclose(result.policy[best], 1 / len(best), rtol=1e-6)
        for action in best:
            assert value_after([*history, action]) == value_after(history)
    assert proven > 40


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_bounds_of_a_tree_hold(algorithm: str, tic_tac_toe: Game) -> None:
    tree = solve(tic_tac_toe, Settings(algorithm, 1000), [4]).tree(0)
    histories: list[list[int]] = []
    for parent, action in zip(tree["parent"], tree["action"], strict=True):
        histories.append([4] if parent < 0 else [*histories[parent], int(action)])
    exact = [value_after(history) for history in histories]
    assert (tree["lower"] <= exact).all()
    assert (tree["upper"] >= exact).all()
    assert (tree["lower"] == tree["upper"]).sum() > 100


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_solved_root_stops_its_search(algorithm: str, tic_tac_toe: Game) -> None:
    search = solve(tic_tac_toe, Settings(algorithm, 5000), [0, 3, 1, 4])  # player 0 wins with 2
    assert search.result(0).proven
    assert search.result(0).root_value == 1.0
    assert search.result(0).best_action == 2
    assert search.simulations < 100


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_solved_node_is_not_searched_again(algorithm: str, tic_tac_toe: Game) -> None:
    settings = Settings(algorithm, 600)
    search = Search(tic_tac_toe, settings.core(), num_slots=1, seed=3, autoplay=False)
    driver = Driver(search, packed_size=3, leaves_per_step=1, evaluate=HashEvaluator(9, seed=2))
    search.start(0, 5, np.array([4, 0], np.uint16))
    frozen: dict[int, np.ndarray] = {}
    while driver.step():
        tree = search.tree(0)
        solved = np.flatnonzero(tree["lower"] == tree["upper"])
        for node in solved[solved > 0]:
            visits = tree["child_visits"][node]
            np.testing.assert_array_equal(visits, frozen.setdefault(int(node), visits))
    assert len(frozen) > 20


@pytest.mark.parametrize("leaves", [1, 4])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_simulation_is_evaluated_once_or_exact(algorithm: str, leaves: int, tic_tac_toe: Game) -> None:
    """Nothing proven or terminal is sent to the evaluator, and nothing twice."""
    for actions in ([], [4], [0, 4, 8]):
        search = solve(tic_tac_toe, Settings(algorithm, 400, leaves_per_step=leaves), actions)
        tree = search.tree(0)
        interior = int((tree["child_visits"].sum(axis=1) > 0).sum())
        assert search.evaluations == 1 + search.simulations - search.exact_simulations  # the root's is no simulation
        assert interior <= search.evaluations <= len(tree["parent"])
        assert search.exact_simulations > 0
        if search.result(0).proven and algorithm == "puct":
            assert search.simulations < 400


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_kept_proofs_need_no_new_simulation(algorithm: str, tic_tac_toe: Game) -> None:
    search = solve(tic_tac_toe, Settings(algorithm, 5000), [0, 3, 1])  # player 1 must block 2 and is lost nowhere else
    driver = Driver(search, packed_size=3, leaves_per_step=1, evaluate=HashEvaluator(9, seed=1))
    assert search.result(0).proven
    search.play(0, search.result(0).best_action)
    before = search.evaluations
    driver.run()
    assert search.result(0).proven
    assert search.evaluations == before
    search.play(0, search.result(0).action)
    assert search.record(0).simulations[-1] == 1  # a target, though nothing had to be searched


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_move_proven_lost_is_not_played_while_another_is_open(algorithm: str, connect_four: Game) -> None:
    """Player 0 threatens 3 on both sides of a row of two: whatever the visits say, no proven loss is chosen."""
    rng = random.Random(8)
    evaluate = HashEvaluator(7, seed=5)
    for _ in range(40):
        history = random_position(connect_four, rng, 14).history()
        settings = Settings(algorithm, 60)
        search = Search(connect_four, settings.core(), num_slots=1, seed=3, autoplay=False)
        driver = Driver(search, packed_size=connect_four.packed_size(), leaves_per_step=1, evaluate=evaluate)
        search.start(0, 5, np.array(history, np.uint16))
        driver.run()
        result, tree = search.result(0), search.tree(0)
        if result.proven:
            continue
        sign = 1 if tree["actor"][0] == 0 else -1
        for child in np.flatnonzero(tree["parent"] == 0):
            if tree["lower"][child] == tree["upper"][child] and sign * tree["lower"][child] == -1:
                assert result.action != tree["action"][child]
                assert result.best_action != tree["action"][child]
