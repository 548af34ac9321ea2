"""The search of one ply in Python where nothing is hidden and nothing left to chance: a tree of positions.

A new leaf costs one copy of the position above it and one move. What a position is asked is asked once, and positions below the action
that is played serve the next ply's search, with new statistics.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, SearchConfig, State
from azq.errors import GameContractError
from azq.search.algorithms import Node, Rngs
from azq.search.portable_ply import LIMIT_PLIES, PortablePly


class KnownPosition:
    """A state with a choice to make among `actions`, and what it said; `forced`: plies that left no choice led here."""

    __slots__ = ("_after", "_observation", "actions", "actor", "forced", "state")

    def __init__(self, state: State, actions: list[int], forced: bool = False) -> None:
        self.state, self.actions, self.forced = state, actions, forced
        self.actor = state.current_player()
        self._observation: NDArray[np.uint8] | None = None
        self._after: dict[int, KnownPosition | list[float]] = {}

    def observation(self) -> NDArray[np.uint8]:
        """Packed, for the player to move."""
        if self._observation is None:
            self._observation = self.state.packed_observation(self.actor)
        return self._observation

    def after(self, action: int) -> KnownPosition | list[float]:
        """The next position with a choice, or the returns where the game ends before."""
        if action not in self._after:
            self._after[action] = self._play(action)
        return self._after[action]

    def decided(self) -> list[float] | None:
        """The returns where an action of the player to move wins at once."""
        for action in self.actions:
            child = self.after(action)
            if isinstance(child, list) and child[self.actor] >= 1.0:
                return child
        return None

    def _play(self, action: int) -> KnownPosition | list[float]:
        state, legal = self.state.clone(), [action]
        for ply in range(LIMIT_PLIES):
            state.apply_action(legal[0])
            if state.is_terminal():
                return state.returns()
            legal = state.legal_actions()
            if len(legal) != 1:
                return KnownPosition(state, legal, forced=ply > 0)
        raise GameContractError(f"{LIMIT_PLIES} plies in a row left no choice")


class TreeNode(Node):
    """A node that is one position; `children`: what its edges led to, returns where the game ended."""

    __slots__ = ("children", "position")

    def __init__(self, position: KnownPosition) -> None:
        super().__init__(position.actor, position.actions)
        self.position = position
        self.children: list[TreeNode | list[float] | None] = [None] * len(position.actions)

    def grow(self, edge: int, decisive: bool) -> TreeNode | list[float]:
        """What an edge leads to; `decisive`: as good as ended where the next action wins."""
        position = self.position.after(self.actions[edge])
        if decisive and isinstance(position, KnownPosition):
            position = position.decided() or position
        child = self.children[edge] = TreeNode(position) if isinstance(position, KnownPosition) else position
        return child


class PortableTree(PortablePly):
    """As `PortablePly`, and the same numbers; `before`: the position to search, where the search of the ply before knew it."""

    def __init__(self, game: Game, config: SearchConfig, state: State, rngs: Rngs, before: KnownPosition | None = None) -> None:
        super().__init__(game, config, state, rngs)
        self._before = before
        self._path: list[tuple[Node, int]] = []
        self._fetched_early = not config.batch_root
        self._early: list[TreeNode] = []  # children of the root whose evaluations are out
        self._known: dict[TreeNode, list[float]] = {}  # the values of those that no simulation came to yet

    def _fetch_early(self, root: TreeNode) -> list[NDArray[np.uint8]]:
        """Children of the root that the ply will visit, together and once, as the core does (tree_search.hpp)."""
        self._fetched_early = True
        assert self._algorithm is not None
        wanted = [edge for edge in range(len(root.actions)) if self._algorithm.will_visit(edge)]
        if len(wanted) <= self._budget:
            self._early = [child for edge in wanted if isinstance(child := root.grow(edge, self._config.decisive_moves), TreeNode)]
        return [child.position.observation() for child in self._early]

    def apply(self, logits: NDArray[np.float16], values: list[float]) -> None:
        if not self._early:
            super().apply(logits, values)
            return
        child = self._early.pop(0)
        of_player = self._known[child] = self._by_player(values, child.actor)
        child.statistics.expand(logits, of_player[child.actor])

    def leaves(self) -> list[NDArray[np.uint8]]:
        child: Node | list[float] | None = self._root
        if child is None:
            position = self._before or KnownPosition(self._state, self._state.legal_actions())
            self._root = self._leaf = TreeNode(position)
            return [position.observation()]
        assert self._algorithm is not None
        assert isinstance(child, TreeNode)
        if not self._fetched_early and (early := self._fetch_early(child)):
            return early
        select = self._algorithm.select
        path: list[tuple[Node, int]] = []
        while isinstance(child, TreeNode):
            node, edge = child, select(child, self.simulations)
            path.append((node, edge))
            child = node.children[edge]
            if child is None:
                child = node.grow(edge, self._config.decisive_moves)
                if isinstance(child, TreeNode):
                    self._leaf, self._path = child, path
                    return [child.position.observation()]
            elif self._known and isinstance(child, TreeNode) and child in self._known:
                child = self._known.pop(child)
        assert isinstance(child, list)
        self._back_up(path, child)
        return []

    def position_after(self, action: int) -> KnownPosition | None:
        """The position that an action leads to, where the search has been there."""
        assert isinstance(self._root, TreeNode)
        child = self._root.children[self._root.actions.index(action)] if action in self._root.actions else None
        return child.position if isinstance(child, TreeNode) and not child.position.forced else None

    def _end_or_go_on(self, leaf: Node, of_player: list[float]) -> None:
        self._back_up(self._path, of_player)
