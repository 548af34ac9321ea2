"""The rule player of Blob."""

from __future__ import annotations

import random

import numpy as np
import pytest

from azq import games
from azq.arena.rules import BlobView, RuleBlob


def rounds(count: int, rules: set[int], seed: int = 1) -> tuple[np.ndarray, float]:
    """Points by seat (count, 4) and the share of bids made exactly by the rule players."""
    game, rng, book = games.load("blob"), random.Random(seed), RuleBlob()
    points, exact = [], []
    for _ in range(count):
        state = game.new_initial_state()
        while not state.is_terminal():
            if state.is_chance_node() or state.current_player() not in rules:
                state.apply_action(rng.choice(state.legal_actions()))
            else:
                state.apply_action(book.best_action(state))
        won = [round(15 * value) for value in state.returns()]
        points.append(won)
        exact += [won[seat] > 0 for seat in rules]
    return np.array(points), float(np.mean(exact)) if exact else 0.0


def test_a_table_of_rule_players_is_far_better_than_one_of_random_players() -> None:
    ruled, exact = rounds(150, {0, 1, 2, 3})
    randomly, _ = rounds(150, set())
    assert ruled.mean() > 3.8
    assert exact > 0.3
    assert randomly.mean() < 2.5


def test_strong_hands_are_worth_more() -> None:
    strong = BlobView(("AS", "KS", "QS"), "S", 4, 3, None, 0, ())
    weak = BlobView(("2H", "3C", "4D"), "S", 4, 3, None, 0, ())
    assert strong.worth() > 2.5
    assert weak.worth() == 0


@pytest.mark.parametrize(
    ("bid", "table", "legal", "chosen"),
    [
        (1, ("9H", "TH", "JH"), ["2H", "QH", "AH"], "QH"),  # last to play: the cheapest card that wins
        (1, ("9H",), ["2H", "QH", "AH"], "AH"),
        (0, ("9H",), ["2H", "8H", "AH"], "8H"),  # the most dangerous card that does not win
        (1, ("9H", "2S"), ["2H", "QH"], "2H"),  # nothing wins: keep the better card
        (0, (), ["2H", "AH", "3S"], "2H"),
        (1, (), ["2H", "AH", "3S"], "3S"),
    ],
)
def test_cards_are_played_for_what_is_missing(bid: int, table: tuple[str, ...], legal: list[str], chosen: str) -> None:
    assert BlobView(tuple(legal), "S", 4, 5, bid, 0, table).card(legal) == chosen
