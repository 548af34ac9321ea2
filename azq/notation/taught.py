"""A game that others played as one that a learner takes in: the moves are the policies, the result every value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from azq.games import Game
from azq.wire.messages import GameRecord, SampleEvent


def as_event(game: Game, uid: int, actions: Sequence[int], source: str, at_ms: int, taught: int | None = None) -> SampleEvent:
    """A finished game as if each of its players' moves were the one that a search of one simulation chose.

    T plies, A actions, V values; those of chance carry no targets, nor do plies after the first `taught`. `actions` lead from the initial
    state to an end.
    """
    state, plies, size = game.new_initial_state(), len(actions), game.value_size()
    movers: list[int] = []
    for action in actions:
        movers.append(-1 if state.is_chance_node() else state.current_player())
        state.apply_action(action)
    searched = (np.asarray(movers) >= 0) & (np.arange(plies) < (plies if taught is None else taught))
    chosen = np.zeros((plies, game.num_distinct_actions()), np.bool_)
    chosen[searched, np.asarray(actions)[searched]] = True
    returns = np.asarray(state.returns(), np.float32)
    seats = (np.maximum(movers, 0)[:, None] + np.arange(size)) % len(returns)  # (T, V) the mover's value, then those of the seats after
    record = GameRecord(
        uid=uid,
        actions=np.asarray(actions, "<u2").tobytes(),
        policies=np.ones(int(searched.sum()), "<f2").tobytes(),
        root_values=np.where(searched[:, None], returns[seats], 0.0).astype("<f4").tobytes(),
        simulations=searched.astype("<u2").tobytes(),
        weight_versions=np.zeros(plies, "<u4").tobytes(),
        support=np.packbits(chosen, axis=1, bitorder="little").tobytes(),
    )
    return SampleEvent(record, tuple(map(float, returns)), source, at_ms)
