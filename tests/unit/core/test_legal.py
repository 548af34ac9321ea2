"""The bits behind a leaf that say which actions are legal there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.driver import NO_ACTIONS

from azq import _core, games
from azq.config import SearchConfig
from azq.search.search import exploring, make_search
from azq.wire.arrays import legal_bytes, wanted_places

BLOB: dict[str, Any] = {"players": 4, "cards": 5, "trump": "any"}
SETTINGS = SearchConfig(algorithm="puct", num_simulations=40, dirichlet_fraction=0.0)


@pytest.mark.parametrize(
    ("name", "params", "symmetric"), [("backgammon", {}, False), ("beasty_bar", {}, False), ("blob", BLOB, False), ("othello", {}, True)]
)
def test_logits_of_legal_actions_are_all_that_a_search_needs(name: str, params: dict[str, Any], symmetric: bool) -> None:
    game = games.load(name, **params)
    actions, width = game.num_distinct_actions(), game.packed_size()
    config = exploring(SETTINGS, random_opening_plies=6)
    search = _core.Search(game, config, num_slots=8, seed=1, autoplay=True, merge_symmetries=symmetric)
    for slot in range(8):
        search.start(slot, slot + 1, NO_ACTIONS)
    rows, slots = np.zeros((8, width + legal_bytes(actions)), np.uint8), np.zeros(8, np.int32)
    for _ in range(30):
        leaves = search.collect(rows, slots)
        logits = np.full((leaves, actions), -5.0, np.float16)
        logits.reshape(-1)[wanted_places(rows[:leaves, width:].tobytes(), leaves, actions)] = 0.0
        search.apply(logits, np.zeros((leaves, game.value_size()), np.float16))
        for slot in range(8):
            for prior in search.tree(slot)["prior"]:
                assert np.allclose(prior[prior > 0.0], prior.max())  # equal logits


def test_rows_without_room_for_bits_hold_the_same_leaves() -> None:
    game = games.load("othello")

    def leaves(extra: int) -> np.ndarray[Any, Any]:
        search = make_search(game, exploring(SETTINGS, random_opening_plies=6), num_slots=4, seed=1)
        for slot in range(4):
            search.start(slot, slot + 1, NO_ACTIONS)
        rows = np.full((4, game.packed_size() + extra), 0xFF, np.uint8)
        assert search.collect(rows, np.zeros(4, np.int32)) == 4
        return rows[:, : game.packed_size()]

    assert np.array_equal(leaves(0), leaves(legal_bytes(game.num_distinct_actions())))
