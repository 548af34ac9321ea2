"""Gomoku's opening rule swap2: who moves and who owns which colour, against a plain telling of the rule."""

from __future__ import annotations

import random

import numpy as np
import pytest
from reference.boards import longest_line

from azq import games
from azq.errors import ConfigError, IllegalActionError

CELLS = 81
BLACK, WHITE, MORE = CELLS, CELLS + 1, CELLS + 2


class PlainSwap2:
    """The rule as a list of what has been done; colours are 'x' (black) and 'o'."""

    def __init__(self) -> None:
        self.stones: list[int] = []
        self.choices: list[int] = []
        self.black: int | None = None

    def mover(self) -> int:
        if self.black is not None:
            return self.black if len(self.stones) % 2 == 0 else 1 - self.black
        if MORE in self.choices:
            return 0 if len(self.stones) == 5 else 1
        return 0 if len(self.stones) < 3 else 1

    def legal(self) -> list[int]:
        if self.black is None and len(self.stones) == 3 and not self.choices:
            return [BLACK, WHITE, MORE]
        if self.black is None and len(self.stones) == 5:
            return [BLACK, WHITE]
        return [cell for cell in range(CELLS) if cell not in self.stones]

    def apply(self, action: int) -> None:
        if action < CELLS:
            self.stones.append(action)
            return
        if action != MORE:
            self.black = self.mover() if action == BLACK else 1 - self.mover()
        self.choices.append(action)

    def winner(self) -> int | None:
        colour = (len(self.stones) - 1) % 2
        own = {divmod(cell, 9) for cell in self.stones[colour::2]}
        if not self.stones or max(longest_line(own, divmod(self.stones[-1], 9))) < 5:
            return None
        assert self.black is not None
        return self.black if colour == 0 else 1 - self.black


def play(seed: int) -> tuple[games.State, PlainSwap2]:
    """A random game, compared at every ply."""
    game, plain, rng = games.load("gomoku", size=9, swap2=True), PlainSwap2(), random.Random(seed)
    state = game.new_initial_state()
    while not state.is_terminal():
        assert state.current_player() == plain.mover()
        assert state.legal_actions() == plain.legal()
        again = game.state_from_notation(state.notation())
        assert (str(again), again.current_player(), again.legal_actions()) == (str(state), plain.mover(), plain.legal())
        for player in (0, 1):
            assert (again.packed_observation(player) == state.packed_observation(player)).all()
            own = plain.black == player if plain.black is not None else player == 0
            planes = state.observation_tensor(player)
            stones = np.zeros(CELLS)
            stones[plain.stones[0 if own else 1 :: 2]] = 1
            np.testing.assert_array_equal(planes[0].reshape(-1), stones)
            assert (planes[3] == (plain.black is None)).all()
            assert (planes[4] == (plain.legal()[0] >= CELLS)).all()
            assert (planes[5] == (len(plain.stones) % 2 == 0)).all()
        action = rng.choice(plain.legal())
        state.apply_action(action)
        plain.apply(action)
    return state, plain


def test_random_games_follow_the_rule() -> None:
    ways = set()
    for seed in range(60):
        state, plain = play(seed)
        winner = plain.winner()
        assert state.returns() == ([0.0, 0.0] if winner is None else [1.0 - 2 * winner, 2 * winner - 1.0])
        ways.add(tuple(plain.choices))
    assert ways == {(BLACK,), (WHITE,), (MORE, BLACK), (MORE, WHITE)}


def test_choices_have_names_and_keep_their_places_under_symmetries() -> None:
    game = games.load("gomoku", size=9, swap2=True)
    state = game.new_initial_state()
    for cell in (0, 1, 2):
        state.apply_action(cell)
    assert [state.action_to_string(action) for action in state.legal_actions()] == ["black", "white", "more"]
    with pytest.raises(IllegalActionError, match="action 3 is illegal"):
        state.apply_action(3)
    assert game.num_distinct_actions() == CELLS + 3


def test_other_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="swap2 is there for sizes 9 and 15"):
        games.load("gomoku", size=11, swap2=True)
