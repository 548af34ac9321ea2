"""The classical opponent."""

from __future__ import annotations

import random

import pytest

from azq import _core, games
from azq._core import Game, Uct


def test_it_wins_and_blocks_in_one(connect_four: Game) -> None:
    uct = Uct(connect_four, num_simulations=400, seed=1)
    state = connect_four.new_initial_state()
    for action in (3, 0, 3, 0, 3):
        state.apply_action(action)
    assert uct.best_action(state) == 3
    state.apply_action(6)
    assert uct.best_action(state) == 3
    assert uct.visit_counts().sum() == 400


def test_it_beats_random_players(connect_four: Game) -> None:
    rng = random.Random(1)
    uct = Uct(connect_four, num_simulations=60, seed=2)
    score = 0.0
    for number in range(30):
        state = connect_four.new_initial_state()
        while not state.is_terminal():
            ours = state.current_player() == number % 2
            state.apply_action(uct.best_action(state) if ours else rng.choice(state.legal_actions()))
        score += state.returns()[number % 2]
    assert score > 25


def test_a_seed_fixes_its_choices(tic_tac_toe: Game) -> None:
    state = tic_tac_toe.new_initial_state()
    first, second, other = (Uct(tic_tac_toe, num_simulations=50, seed=seed) for seed in (7, 7, 8))
    for uct in (first, second, other):
        uct.best_action(state)
    assert first.visit_counts().tolist() == second.visit_counts().tolist()
    assert first.visit_counts().tolist() != other.visit_counts().tolist()


def test_it_refuses_foreign_and_finished_games(tic_tac_toe: Game, connect_four: Game) -> None:
    uct = Uct(tic_tac_toe, num_simulations=5, seed=1)
    with pytest.raises(ValueError, match="another game"):
        uct.best_action(connect_four.new_initial_state())
    state = tic_tac_toe.new_initial_state()
    for action in (0, 3, 1, 4, 2):
        state.apply_action(action)
    with pytest.raises(ValueError, match="over"):
        uct.best_action(state)


def test_random_games_have_the_length_that_random_games_have(connect_four: Game) -> None:
    played, plies = _core.random_playouts(connect_four, 20_000, 3)
    assert played == 20_000
    assert plies / played == pytest.approx(21.3, abs=0.3)


def test_redraws_are_counted_where_something_is_hidden(connect_four: Game) -> None:
    blob = games.load("blob", players=3, cards=2)
    assert _core.random_redraws(blob, 10, 3) == 10 * 32 * (3 + 6)  # three bids and six cards a game
    assert _core.random_redraws(connect_four, 10, 3) == 0
