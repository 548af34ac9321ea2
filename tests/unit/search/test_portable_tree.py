"""What the search in Python asks of a game without chance and secrets: each position once, also across plies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq.games.adapted_state import AdaptedState
from azq.search.portable import PortableSearch

NIM = f"{Path(__file__).parents[2] / 'games' / 'nim.py'}:Nim"


def test_a_position_is_asked_once_in_a_game(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: Counter[tuple[int, ...]] = Counter()
    packed = AdaptedState.packed_observation

    def counted(state: AdaptedState, player: int | None = None) -> np.ndarray:
        shown[tuple(state.history())] += 1
        return packed(state, player)

    monkeypatch.setattr(AdaptedState, "packed_observation", counted)
    game = games.load(NIM)
    search = PortableSearch(game, Settings("gumbel", 16).core(), num_slots=1, seed=3)
    (record,) = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=HashEvaluator(3)).play([1])
    assert len(record.actions) >= 5
    assert search.evaluations > len(shown)  # the positions of later plies were shown already
    assert set(shown.values()) == {1}


def test_an_action_played_by_somebody_else_is_searched_from_where_it_leads() -> None:
    game = games.load(NIM)
    results = []
    for history in ([], [2]):
        search = PortableSearch(game, Settings("puct", 30).core(), num_slots=1, seed=3, autoplay=False)
        search.start(0, 1, np.array(history, np.uint16))
        driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=HashEvaluator(3))
        if not history:
            driver.run()
            search.play(0, 2)
        driver.run()
        results.append(search.result(0))
    np.testing.assert_array_equal(results[0].visit_counts, results[1].visit_counts)
    np.testing.assert_array_equal(results[0].q_values, results[1].q_values)
