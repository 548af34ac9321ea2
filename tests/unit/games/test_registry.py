"""Games by name."""

from __future__ import annotations

import pytest

from azq import games
from azq._core import Uct
from azq.errors import ConfigError, IllegalActionError, UnknownGameError


def test_names_are_sorted_and_loadable() -> None:
    assert list(games.names()) == sorted(games.names())
    for name in games.names():
        game = games.load(name)
        assert game.name == name
        assert games.load(name, **game.params).params == game.params


def test_an_unknown_game_names_the_known_ones() -> None:
    with pytest.raises(UnknownGameError, match=r"'chess'.*connect_four, .*tic_tac_toe"):
        games.load("chess")


def test_an_unknown_parameter_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="connect_four has no parameter rows"):
        games.load("connect_four", rows=8)


@pytest.mark.parametrize("name", games.names())
def test_an_illegal_action_names_the_legal_ones_and_changes_nothing(name: str) -> None:
    game = games.load(name)
    state = game.new_initial_state()
    first = state.legal_actions()[-1]
    state.apply_action(first)
    legal, player = state.legal_actions(), state.current_player()
    for action in (-1, max(game.num_distinct_actions(), game.max_chance_outcomes()), 1 << 20):
        with pytest.raises(IllegalActionError, match=rf"action {action} is illegal after 1 plies; legal actions: {legal[0]}"):
            state.apply_action(action)
    assert state.history() == [first]
    assert (state.legal_actions(), state.current_player()) == (legal, player)


def test_nothing_is_legal_after_the_end() -> None:
    state = games.load("tic_tac_toe").new_initial_state()
    for action in (0, 3, 1, 4, 2):
        state.apply_action(action)
    assert state.is_terminal()
    assert state.current_player() == games.TERMINAL_PLAYER
    assert state.legal_actions() == []
    assert state.returns() == [1.0, -1.0]
    with pytest.raises(IllegalActionError, match="the game is over"):
        state.apply_action(5)


def test_a_clone_goes_its_own_way() -> None:
    state = games.load("connect_four").new_initial_state()
    state.apply_action(3)
    clone = state.clone()
    clone.apply_action(3)
    assert state.history() == [3]
    assert clone.history() == [3, 3]
    assert str(state) != str(clone)


def test_the_board_reads_like_a_board() -> None:
    state = games.load("connect_four").new_initial_state()
    for action in (3, 3, 4):
        state.apply_action(action)
    assert str(state) == ".......\n" * 4 + "...o...\n...xx..\n"
    assert state.action_to_string(6) == "o6"


def test_values_that_a_parameter_does_not_take_are_named_with_those_it_does() -> None:
    with pytest.raises(ConfigError, match="othello: parameter size = 7; it takes one of 8, 6"):
        games.load("othello", size=7)
    with pytest.raises(ConfigError, match="gomoku: parameter exact5 = 1; it takes true or false"):
        games.load("gomoku", exact5=1)
    assert games.load("hex").params == {"size": 11, "swap": False}


def test_searches_take_states_of_their_own_parameters_only() -> None:
    uct = Uct(games.load("hex", size=5), num_simulations=10, seed=1)
    with pytest.raises(ValueError, match="other parameters"):
        uct.best_action(games.load("hex", size=7).new_initial_state())
