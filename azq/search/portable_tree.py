"""The search of one ply in Python where nothing is hidden and nothing left to chance: a tree of positions.

A new leaf costs one copy of the position above it and one move. What a position is asked is asked once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from azq._core import State
from azq.errors import GameContractError
from azq.search.algorithms import Node
from azq.search.portable_ply import LIMIT_PLIES, PortablePly


class Position(Node):
    """A node that is one position; `children`: what its edges lead to, once tried, and the returns where the game ends there."""

    __slots__ = ("children", "state")

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.state = state
        self.children: list[Position | list[float] | None] = [None] * len(self.actions)

    def follow(self, edge: int) -> Position | list[float]:
        """Through whatever leaves no choice to the next decision, or to the end."""
        state, legal = self.state.clone(), [self.actions[edge]]
        for _ in range(LIMIT_PLIES):
            state.apply_action(legal[0])
            if state.is_terminal():
                return state.returns()
            legal = state.legal_actions()
            if len(legal) != 1:
                return Position(state)
        raise GameContractError(f"{LIMIT_PLIES} plies in a row left no choice")


class PortableTree(PortablePly):
    """As `PortablePly`, and the same numbers."""

    def _node_of(self, state: State) -> Node:
        return Position(state)

    def _walk(self) -> NDArray[np.uint8] | None:
        assert self._algorithm is not None
        select = self._algorithm.select
        found: Node | list[float] | None = self._root
        self._path: list[tuple[Node, int]] = []
        path = self._path
        while isinstance(found, Position):
            node, edge = found, select(found, self.simulations)
            path.append((node, edge))
            found = node.children[edge]
            if found is None:
                found = node.children[edge] = node.follow(edge)
                if isinstance(found, Position):
                    self._leaf = found
                    return found.state.packed_observation(found.actor)
        assert isinstance(found, list)
        self._back_up(path, found)
        return None

    def _end_or_go_on(self, leaf: Node, of_player: list[float]) -> None:
        self._back_up(self._path, of_player)
