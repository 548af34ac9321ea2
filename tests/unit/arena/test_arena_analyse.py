"""Exact values over chance: probabilities, the sign of the actor, ends, batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arena_doubles import CardGame, Knowing, Walk, WalkGame
from hypothesis import given
from hypothesis import strategies as st

from azq.arena import analyse
from azq.arena.analyse import expected_values, for_player
from azq.errors import ConfigError

WALK: Any = WalkGame()


def walk(*past: int) -> Any:
    state = Walk()
    for action in past:
        state.apply_action(action)
    return state


def lead(packed: np.ndarray[Any, Any]) -> list[float]:
    """The mover's steps less the other's, in tenths."""
    plies, one, other = (int(number) for number in packed)
    return [(one - other) / 10 * (1 if plies // 3 % 2 == 0 else -1)]


def test_every_outcome_counts_by_its_probability() -> None:
    # after player 0's turn the other throws 0, 1 or 2: one more for him on average, and he is to move
    (value,) = expected_values(WALK, Knowing(lead, 2), [walk(2, 1, 1)], 0)
    assert value == pytest.approx((4 - 1) / 10, abs=1e-3)
    (same,) = expected_values(WALK, Knowing(lead, 2), [walk(2, 1, 1)], 1)
    assert same == pytest.approx(-value, abs=1e-6)


def test_the_same_player_to_move_keeps_the_sign() -> None:
    assert expected_values(WALK, Knowing(lead, 2), [walk(2, 1), walk(2, 1, 1, 0)], 0) == pytest.approx([0.3, 0.4], abs=1e-3)


def test_ends_count_as_they_are_and_ask_nobody() -> None:
    evaluator = Knowing(lead, 2)
    over = walk(2, 1, 1, 0, 0, 0, 2, 1, 1, 0, 0, 0)
    assert expected_values(WALK, evaluator, [over], 0) == [1.0]
    assert expected_values(WALK, evaluator, [over], 1) == [-1.0]
    assert evaluator.batches == []


def test_all_leaves_go_in_one_batch() -> None:
    evaluator = Knowing(lead, 2)
    expected_values(WALK, evaluator, [walk(2, 1, 1), walk(2, 1, 0), walk(2, 0)], 0)
    assert evaluator.batches == [7]


def test_hidden_hands_and_too_many_outcomes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cards: Any = CardGame()
    with pytest.raises(ConfigError, match="hidden"):
        expected_values(cards, Knowing(lead, 9), [cards.new_initial_state()], 0)
    monkeypatch.setattr(analyse, "MAX_LEAVES", 2)
    with pytest.raises(ConfigError, match="outcomes"):
        expected_values(WALK, Knowing(lead, 2), [walk(2, 1, 1)], 0)


@given(st.integers(2, 6), st.integers(0, 5), st.lists(st.floats(-1, 1), min_size=6, max_size=6))
def test_values_a_seat_are_relative_to_the_mover(num_players: int, mover: int, values: list[float]) -> None:
    mover %= num_players
    absolute = {(mover + row) % num_players: value for row, value in enumerate(values[:num_players])}
    for player in range(num_players):
        assert for_player(values[:num_players], mover, player, num_players) == absolute[player]
