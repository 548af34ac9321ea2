"""How the search in Python chooses: nodes with their statistics, PUCT and Gumbel over them. Names and formulas are the core's.

Values are the node's own actor's. Letters: E legal actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from azq._core import SearchConfig, State

GUMBEL, DIRICHLET, TEMPERATURE = 5, 6, 7  # what a ply's random numbers are for

Rngs = Callable[[int], np.random.Generator]  # the random numbers of a ply for one purpose


class Node:
    """What its actor cannot tell apart."""

    __slots__ = ("actions", "actor", "logits", "mean", "prior", "q", "raw_value", "total", "visits")

    def __init__(self, state: State) -> None:
        self.actor = state.current_player()
        self.actions = state.legal_actions()
        count = len(self.actions)
        self.logits: NDArray[Any] = np.zeros(count)
        self.prior: NDArray[Any] = np.full(count, 1.0 / count)
        self.q: NDArray[Any] = np.zeros(count)
        self.visits: NDArray[Any] = np.zeros(count, np.int64)
        self.raw_value = self.mean = 0.0
        self.total = 0  # visits, its own evaluation included

    def expand(self, logits: NDArray[np.float32], value: float) -> None:
        """Takes the evaluation: logits of all actions, value for the actor."""
        self.logits = np.clip(logits[self.actions].astype(np.float64), -65504.0, 65504.0)
        weights = np.exp(self.logits - self.logits.max())
        self.prior = np.maximum(weights / weights.sum(), 1e-38)
        self.raw_value = value
        self._count(value)

    def update(self, edge: int, value: float) -> None:
        """Backs a value up through an edge."""
        self.visits[edge] += 1
        self.q[edge] += (value - self.q[edge]) / self.visits[edge]
        self._count(value)

    def _count(self, value: float) -> None:
        self.total += 1
        self.mean += (value - self.mean) / self.total


@dataclass(slots=True)
class Choice:
    """What a spent search says; edges count the root's legal actions."""

    edge: int
    best_edge: int
    weights: NDArray[Any]  # (E,) the policy target
    root_value: float


class Algorithm(Protocol):
    """What a ply asks of its algorithm, which is made once the root is evaluated."""

    def __init__(self, root: Node, config: SearchConfig, rngs: Rngs) -> None: ...
    def select(self, node: Node, simulation: int) -> int: ...
    def decide(self, explores: bool) -> Choice: ...


class Puct:
    """PUCT (Silver et al., Science 362, 2018)."""

    def __init__(self, root: Node, config: SearchConfig, rngs: Rngs) -> None:
        self._root, self._config, self._rngs = root, config, rngs
        if config.dirichlet_fraction > 0:
            noise = rngs(DIRICHLET).dirichlet([config.dirichlet_alpha] * len(root.actions))
            root.prior = (1 - config.dirichlet_fraction) * root.prior + config.dirichlet_fraction * noise

    def select(self, node: Node, simulation: int) -> int:
        """argmax of Q + c_puct P sqrt(N) / (1 + n), unvisited actions at the mean less fpu_reduction."""
        value = np.where(node.visits > 0, node.q, node.mean - self._config.fpu_reduction)
        return int(np.argmax(value + self._config.c_puct * math.sqrt(node.total) * node.prior / (1 + node.visits)))

    def decide(self, explores: bool) -> Choice:
        """The visit distribution as target; plays a draw from visits^(1 / temperature) where it explores, else the most visited."""
        root = self._root
        weights = root.visits / root.visits.sum() if root.visits.any() else root.prior / root.prior.sum()
        best = edge = int(np.argmax(weights))
        if explores:
            powers = (weights / weights.max()) ** (1.0 / self._config.temperature)
            edge = int(self._rngs(TEMPERATURE).choice(len(powers), p=powers / powers.sum()))
        return Choice(edge, best, weights, root.mean)


class Gumbel:
    """Gumbel AlphaZero (Danihelka et al., ICLR 2022)."""

    def __init__(self, root: Node, config: SearchConfig, rngs: Rngs) -> None:
        """Gumbel-top-k: the candidates are the actions with the largest g + logit."""
        self._root, self._config = root, config
        noise = config.gumbel_scale * rngs(GUMBEL).gumbel(size=len(root.actions)) if config.gumbel_scale > 0 else 0.0
        self._noisy_logits = root.logits + noise
        count = min(len(root.actions), config.max_considered_actions)
        self._candidate = np.zeros(len(root.actions), np.bool_)
        self._candidate[np.argsort(-self._noisy_logits, kind="stable")[:count]] = True
        self._schedule = considered_visits(count, config.num_simulations)

    def select(self, node: Node, simulation: int) -> int:
        """argmax of pi'(a) - n(a) / (1 + sum n); at the root of g + logit + sigma(q), among the candidates whose turn it is."""
        if node is not self._root:
            return int(np.argmax(self._improved(node)[0] - node.visits / node.total))
        competes = self._candidate & (node.visits == self._schedule[simulation])
        return int(np.argmax(np.where(competes, self._noisy_logits + self._sigma(node)[1], -np.inf)))

    def decide(self, explores: bool) -> Choice:
        """The improved policy as target; plays the survivor of sequential halving."""
        root = self._root
        policy, q, sigma = self._improved(root)
        most = root.visits == root.visits.max()
        edge = int(np.argmax(np.where(most, self._noisy_logits + sigma, -np.inf)))
        best = int(np.argmax(np.where(most, root.logits + sigma, -np.inf)))
        return Choice(edge, best, policy, float(np.clip((policy * q).sum(), -1.0, 1.0)))

    def _sigma(self, node: Node) -> tuple[NDArray[Any], NDArray[Any]]:
        """Completed Q (E,) and sigma of it (E,) (Gumbel AlphaZero, appendix D)."""
        visited = node.visits > 0
        total = int(node.visits.sum())
        mixed = node.raw_value
        if total:
            weighted = float((node.prior * node.q)[visited].sum() / node.prior[visited].sum())
            mixed = (mixed + total * weighted) / (1 + total)
        q = np.where(visited, node.q, mixed)
        return q, (self._config.c_visit + int(node.visits.max())) * self._config.c_scale * 0.5 * (q + 1.0)

    def _improved(self, node: Node) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The improved policy (E,), completed Q (E,) and sigma of it (E,)."""
        q, sigma = self._sigma(node)
        scores = node.logits + sigma
        weights = np.exp(scores - scores.max())
        return weights / weights.sum(), q, sigma


def considered_visits(candidates: int, num_simulations: int) -> list[int]:
    """Sequential halving as a sequence: at each simulation, how many visits the competing candidates have (mctx, seq_halving.py)."""
    if candidates <= 1:
        return list(range(num_simulations))
    rounds, left = math.ceil(math.log2(candidates)), candidates
    sequence: list[int] = []
    visits = [0] * candidates
    while len(sequence) < num_simulations:
        for _ in range(max(1, num_simulations // (rounds * left))):
            sequence += visits[:left]
            visits = [count + (number < left) for number, count in enumerate(visits)]
        left = max(2, left // 2)
    return sequence[:num_simulations]


ALGORITHMS: dict[str, type[Algorithm]] = {"gumbel": Gumbel, "puct": Puct}
