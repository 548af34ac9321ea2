"""A greedy player of Beasty Bar: looks one card ahead and counts points, in the bar and on their way to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from azq import _core

ANIMALS = 12
POINTS = (4, 4, 4, 3, 3, 2, 4, 3, 2, 3, 2, 2)  # by strength, the skunk first
PLACES = (0.9, 0.8, 0.3, 0.2, 0.0, 1.0, -0.5)  # what a point is worth at queue index 0..4, in the bar, and out
LATE_PLIES = 8  # with fewer plies left a queue loses its worth, for less of it will ever move


class GreedyBeasty:
    """Plays whatever leaves the best position by its own count, the points of the others against it in equal parts.

    `scoring`: as the game's parameter; without points every animal counts 1.
    """

    def __init__(self, scoring: Literal["points", "count"] = "points") -> None:
        points = np.array(POINTS if scoring == "points" else (1,) * ANIMALS, dtype=np.float32)
        self._worth = np.outer(PLACES, points).astype(np.float32)[:, None, :]

    def choose(self, states: Sequence[_core.State]) -> list[int]:
        """One action for each state; reads only what its player to move observes. Ties go to the lowest action."""
        return [self._best(state) for state in states]

    def _best(self, state: _core.State) -> int:
        player = state.current_player()
        actions = state.legal_actions()
        if len(actions) == 1:
            return actions[0]
        values = []
        for action in actions:
            after = state.clone()
            after.apply_action(action)
            values.append(self._value(after.observation_tensor(player), after.scalars(player)))
        return actions[int(np.argmax(values))]

    def _value(self, planes: NDArray[np.float32], scalars: NDArray[np.int8]) -> float:
        """Of the viewer's observation: planes (9, 1, 12 n), the first seven of them PLACES; after the points the plies left."""
        seats = planes.shape[2] // ANIMALS
        by_place = (planes[: len(PLACES)].reshape(len(PLACES), seats, ANIMALS) * self._worth).sum(axis=2)
        queued = min(1.0, float(scalars[1 + seats]) / LATE_PLIES)
        by_seat = queued * by_place[:5].sum(axis=0) + by_place[5:].sum(axis=0)
        return float(by_seat[0] - by_seat[1:].mean())
