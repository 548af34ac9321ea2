"""Random games played in our rules and in an oracle's at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from azq import games


def lockstep(ours: games.Game, theirs: Any, count: int, seed: int) -> Iterator[tuple[games.State, Any]]:
    """Yields both states at every ply, ends included, once players, legal actions and returns agree; `theirs` has OpenSpiel's names."""
    rng = random.Random(seed)
    for _ in range(count):
        state, oracle = ours.new_initial_state(), theirs.new_initial_state()
        while True:
            assert state.is_terminal() == oracle.is_terminal()
            assert state.current_player() == oracle.current_player()
            assert state.legal_actions() == oracle.legal_actions()
            yield state, oracle
            if oracle.is_terminal():
                assert state.returns() == oracle.returns()
                break
            action = rng.choice(oracle.legal_actions())
            state.apply_action(action)
            oracle.apply_action(action)
