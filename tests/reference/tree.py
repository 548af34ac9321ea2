"""Nodes and edges of the reference search, and exact values proven by terminal nodes. Values are player 0's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from azq._core import TERMINAL_PLAYER, State
from reference.float32 import F

MIN_PRIOR = F(1.17549435e-38)
LOWEST, ZERO, HIGHEST = F(-1.0), F(0.0), F(1.0)


@dataclass
class Edge:
    """One legal action of a node."""

    action: int
    prior: F = ZERO
    logit: F = ZERO
    q: F = ZERO
    visits: int = 0
    in_flight: int = 0
    child: Node | None = None

    def solved(self) -> bool:
        """The child's exact value is known, and is q."""
        return self.child is not None and self.child.solved()

    def lost(self, sign: F) -> bool:
        """Proven lost for the actor."""
        return self.solved() and bool(sign * self.q <= LOWEST)


class Chooser(Protocol):
    """What choosing among the edges of a node asks of it; of one position, or of all that its actor cannot tell apart."""

    edges: list[Edge]
    visits: int
    in_flight: int
    raw_value: F
    mean: F
    lower: F
    upper: F

    @property
    def sign(self) -> F: ...

    def solved(self) -> bool: ...


@dataclass
class Node:
    """One position."""

    state: State
    parent: Node | None
    parent_edge: Edge | None
    number: int  # nodes are numbered as they are created
    actor: int = field(init=False)
    edges: list[Edge] = field(init=False)
    visits: int = 0
    in_flight: int = 0
    raw_value: F = ZERO
    mean: F = ZERO
    lower: F = LOWEST
    upper: F = HIGHEST
    pending: bool = False
    expanded: bool = False

    def __post_init__(self) -> None:
        self.actor = self.state.current_player()
        self.edges = [Edge(action) for action in self.state.legal_actions()]
        if self.actor == TERMINAL_PLAYER:
            self.lower = self.upper = F(self.state.returns()[0])

    @property
    def sign(self) -> F:
        """+1 where the actor is player 0, else -1."""
        return F(1.0) if self.actor == 0 else F(-1.0)

    def solved(self) -> bool:
        """The exact value is known."""
        return bool(self.lower == self.upper)

    def tighten(self) -> bool:
        """Intersects the bounds with what the children prove; whether they became narrower."""
        low, high = LOWEST, LOWEST
        for edge in self.edges:
            if edge.child is None:
                high = HIGHEST
                continue
            bounds = sorted([self.sign * edge.child.lower, self.sign * edge.child.upper])
            low, high = max(low, bounds[0]), max(high, bounds[1])
        lower, upper = sorted([self.sign * low, self.sign * high])
        narrower = bool(lower > self.lower or upper < self.upper)
        self.lower, self.upper = max(self.lower, lower), min(self.upper, upper)
        return narrower


def best(scores: list[F | None]) -> int:
    """The index of the largest score; the lowest one on ties; None is never chosen."""
    chosen, most = -1, None
    for i, score in enumerate(scores):
        if score is not None and (most is None or score > most):
            chosen, most = i, score
    return chosen


def subtree(root: Node) -> list[Node]:
    """A node and all nodes below it, in the order of their creation."""
    found, open_nodes = [], [root]
    while open_nodes:
        node = open_nodes.pop()
        found.append(node)
        open_nodes.extend(edge.child for edge in node.edges if edge.child is not None)
    return sorted(found, key=lambda node: node.number)


def keep(root: Node, max_nodes: int) -> None:
    """Makes a node a root, keeping only the oldest nodes below it."""
    root.parent = root.parent_edge = None
    for node in subtree(root)[max_nodes:]:
        assert node.parent_edge is not None
        node.parent_edge.child = None
    if root.solved() and not any(edge.solved() and edge.q == root.lower for edge in root.edges):
        root.lower, root.upper = LOWEST, HIGHEST  # trimming took the child that proved it
        root.tighten()
