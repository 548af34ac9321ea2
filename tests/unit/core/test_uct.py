"""The classical opponent."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from azq import _core, games
from azq._core import Game, State, Uct
from azq.arena.engines.gnubg import write_position_id
from azq.arena.match import draw_outcome
from azq.errors import ConfigError


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


def bear_off(points: Sequence[int], dice: str, player: int) -> State:
    """A checker of the player to move on each of these points of his, against three on the other's first: he has this turn and the next,
    and a third where no double comes."""
    own, other = (tuple(places.count(point) for point in range(1, 26)) for places in (points, (1, 1, 1)))
    return games.load("backgammon").state_from_notation(f"{write_position_id((own, other), on_roll=True)}:{dice}{f':p{player}' * player}")


def after(state: State, action: int) -> State:
    then = state.clone()
    then.apply_action(action)
    return then


def expectation(state: State, player: int) -> float:
    """What a player has in the end when both play perfectly, by every roll and every play."""
    if state.is_terminal():
        return state.returns()[player]
    if state.is_chance_node():
        return sum(probability * expectation(after(state, outcome), player) for outcome, probability in state.chance_outcomes())
    values = [expectation(after(state, action), player) for action in state.legal_actions()]
    return max(values) if state.current_player() == player else min(values)


@pytest.mark.parametrize("player", [0, 1])
@pytest.mark.parametrize(("points", "dice"), [((4, 3, 2), "21"), ((6, 3), "21"), ((6, 4), "31"), ((5, 3), "21")])
def test_it_weighs_dice_as_perfect_play_does(points: tuple[int, ...], dice: str, player: int) -> None:
    state = bear_off(points, dice, player)
    assert state.current_player() == player
    values = {action: expectation(after(state, action), player) for action in state.legal_actions()}
    assert max(values.values()) - min(values.values()) > 0.06
    chosen = Uct(games.load("backgammon"), num_simulations=20_000, seed=1, c_uct=0.5).best_action(state)
    assert values[chosen] > max(values.values()) - 0.04


def test_it_plays_games_for_one_and_scores_more_than_random_players() -> None:
    game = games.load("2048")
    scores = []
    for simulations, seed in ((1, 1), (20, 1), (20, 2)):
        uct, rng, state = Uct(game, num_simulations=simulations, seed=seed), random.Random(seed), game.new_initial_state()
        while not state.is_terminal():
            state.apply_action(draw_outcome(state, rng) if state.is_chance_node() else uct.best_action(state))
        scores.append(state.returns()[0])
    assert min(scores[1:]) > scores[0]


def test_hidden_hands_are_none_of_its_business() -> None:
    with pytest.raises(ConfigError, match="for blob use pimc"):
        Uct(games.load("blob"), num_simulations=5, seed=1)


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
