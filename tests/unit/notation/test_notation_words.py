"""Moves as people write them, in every game."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq import games
from azq.arena.match import draw_outcome
from azq.errors import IllegalActionError
from azq.games import State
from azq.notation.words import legal_texts, read_move


def somewhere(game: str, plies: int, seed: int) -> State:
    luck, state = random.Random(seed), games.load(game).new_initial_state()
    while plies > 0 or state.is_chance_node():
        action = draw_outcome(state, luck) if state.is_chance_node() else luck.choice(state.legal_actions())
        after = state.clone()
        after.apply_action(action)
        if after.is_terminal():
            return state if not state.is_chance_node() else somewhere(game, 0, seed)
        state, plies = after, plies - 1
    return state


@given(st.sampled_from(games.names()), st.integers(0, 60), st.integers(0, 2**32))
def test_every_legal_move_is_read_by_its_text(game: str, plies: int, seed: int) -> None:
    state = somewhere(game, plies, seed)
    for action in state.legal_actions()[-8:]:
        text = state.action_to_string(action)
        for written in (text, f" {text.upper()} "):
            assert [state.action_to_string(one) for one in read_move(state, written)] == [text]
    for text, action in zip(legal_texts(state)[:8], state.legal_actions(), strict=False):
        assert state.action_to_string(read_move(state, text)[0]) == state.action_to_string(action)


@given(st.text(max_size=12), st.sampled_from(games.names()))
def test_whatever_is_written_is_legal_or_refused(text: str, game: str) -> None:
    state = somewhere(game, 3, 1)
    try:
        actions = read_move(state, text)
    except IllegalActionError:
        return
    for action in actions:
        state.apply_action(action)


def after_roll(dice: str) -> State:
    state = games.load("backgammon").new_initial_state()
    (roll,) = [outcome for outcome, _ in state.chance_outcomes() if state.action_to_string(outcome) == f"x rolls {dice}"]
    state.apply_action(roll)
    return state


@pytest.mark.parametrize(
    ("dice", "written", "played"),
    [
        ("31", "8/5 6/5", ["x 8/5", "x 6/5"]),
        ("31", "6/5, 8/5", ["x 6/5", "x 8/5"]),
        ("62", "24/18/16", ["x 24/18", "x 18/16"]),
        ("62", "24/18", ["x 24/18"]),
    ],
)
def test_a_turn_of_backgammon_is_read_whole(dice: str, written: str, played: list[str]) -> None:
    state = after_roll(dice)
    texts = []
    for action in read_move(state, written):
        texts.append(state.action_to_string(action))
        state.apply_action(action)
    assert texts == played


def test_numbers_and_beginnings_that_are_clear_are_read() -> None:
    gomoku, tic_tac_toe = games.load("gomoku").new_initial_state(), games.load("tic_tac_toe").new_initial_state()
    assert read_move(gomoku, "5") == [5]
    assert gomoku.action_to_string(read_move(gomoku, "o5")[0]) == "o5"
    assert read_move(tic_tac_toe, "1,2") == [5]
    with pytest.raises(IllegalActionError, match=r"there are: \(0,0\), "):
        read_move(tic_tac_toe, "here")


def test_doubles_are_read_in_any_order() -> None:
    game = games.load("backgammon")
    state = game.state_from_notation("4HPwATDgc/ABMA:66")
    actions = read_move(state, "13/7(2) 24/18(2)")
    for action in actions:
        state.apply_action(action)
    assert len(actions) == 4
    with pytest.raises(IllegalActionError, match="no move here"):
        read_move(game.state_from_notation("4HPwATDgc/ABMA:66"), "13/7(3) 24/18(2)")
