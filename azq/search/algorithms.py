"""How the search in Python chooses: nodes, PUCT and Gumbel over them. Names and formulas are the core's.

The arithmetic of a node is `azq._core.NodeStatistics`; what happens once a ply is here.
Values are the node's own actor's. Letters: E legal actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq._core import NodeStatistics, SearchConfig

GUMBEL, DIRICHLET, TEMPERATURE = 5, 6, 7  # what a ply's random numbers are for

Rngs = Callable[..., np.random.Generator]  # the random numbers of a ply for one purpose


class Node:
    """What its actor cannot tell apart."""

    __slots__ = ("actions", "actor", "statistics")

    def __init__(self, actor: int, actions: list[int]) -> None:
        self.actor, self.actions = actor, actions
        self.statistics = NodeStatistics(actions)


@dataclass(slots=True)
class Choice:
    """What a spent search says; edges count the root's legal actions."""

    edge: int
    best_edge: int
    weights: NDArray[Any]  # (E,) the policy target
    root_value: float


class Puct:
    """PUCT (Silver et al., Science 362, 2018)."""

    def __init__(self, root: Node, config: SearchConfig, rngs: Rngs) -> None:
        self._root, self._temperature, self._rngs = root, config.temperature, rngs
        self._terms = config.c_puct, config.fpu_reduction, config.q_range
        if config.dirichlet_fraction > 0:
            noise = rngs(DIRICHLET).dirichlet([config.dirichlet_alpha] * len(root.actions))
            root.statistics.prior = (1 - config.dirichlet_fraction) * root.statistics.prior + config.dirichlet_fraction * noise

    def will_visit(self, edge: int) -> bool:
        """Whether the ply may visit an action of the root: unknown before it does."""
        return True

    def select(self, node: Node, simulation: int) -> int:
        """argmax of Q + c_puct P sqrt(N) / (1 + n), unvisited actions at the mean less fpu_reduction."""
        return node.statistics.select_puct(*self._terms)

    def decide(self, explores: bool) -> Choice:
        """The visit distribution as target; plays a draw from visits^(1 / temperature) where it explores, else the most visited."""
        root = self._root.statistics
        visits, prior = root.visits, root.prior
        weights = visits / visits.sum() if visits.any() else prior / prior.sum()
        best = edge = int(np.argmax(weights))
        if explores:
            powers = (weights / weights.max()) ** (1.0 / self._temperature)
            edge = int(self._rngs(TEMPERATURE).choice(len(powers), p=powers / powers.sum()))
        return Choice(edge, best, weights, root.mean)


class Gumbel:
    """Gumbel AlphaZero (Danihelka et al., ICLR 2022)."""

    def __init__(self, root: Node, config: SearchConfig, rngs: Rngs) -> None:
        """Gumbel-top-k: the candidates are the actions with the largest g + logit."""
        self._root, self._sigma = root, (config.c_visit, config.c_scale, config.q_range)
        noise = config.gumbel_scale * rngs(GUMBEL).gumbel(size=len(root.actions)) if config.gumbel_scale > 0 else 0.0
        self._noisy_logits = root.statistics.logits + noise
        count = min(len(root.actions), config.max_considered_actions)
        self._of_candidates = np.full(len(root.actions), -np.inf)
        chosen = np.argsort(-self._noisy_logits, kind="stable")[:count]
        self._of_candidates[chosen] = self._noisy_logits[chosen]
        self._schedule = considered_visits(count, config.num_simulations)

    def will_visit(self, edge: int) -> bool:
        """Whether an action of the root is a candidate: the first round of sequential halving visits each."""
        return bool(np.isfinite(self._of_candidates[edge]))

    def select(self, node: Node, simulation: int) -> int:
        """argmax of pi'(a) - n(a) / (1 + sum n); at the root of g + logit + sigma(q), among the candidates whose turn it is."""
        if node is not self._root:
            return node.statistics.select_gumbel(*self._sigma)
        return node.statistics.select_considered(self._of_candidates, self._schedule[simulation], *self._sigma)

    def decide(self, explores: bool) -> Choice:
        """The improved policy as target; plays the survivor of sequential halving."""
        root = self._root.statistics
        policy, q, sigma = root.improved(*self._sigma)
        visits = root.visits
        most = visits == visits.max()
        edge = int(np.argmax(np.where(most, self._noisy_logits + sigma, -np.inf)))
        best = int(np.argmax(np.where(most, root.logits + sigma, -np.inf)))
        return Choice(edge, best, policy, float(np.clip((policy * q).sum(), -1.0, 1.0)))


@lru_cache(maxsize=4096)
def considered_visits(candidates: int, num_simulations: int) -> tuple[int, ...]:
    """Sequential halving as a sequence: at each simulation, how many visits the competing candidates have (mctx, seq_halving.py)."""
    if candidates <= 1:
        return tuple(range(num_simulations))
    rounds, left = math.ceil(math.log2(candidates)), candidates
    sequence: list[int] = []
    visits = [0] * candidates
    while len(sequence) < num_simulations:
        for _ in range(max(1, num_simulations // (rounds * left))):
            sequence += visits[:left]
            visits = [count + (number < left) for number, count in enumerate(visits)]
        left = max(2, left // 2)
    return tuple(sequence[:num_simulations])


Algorithm = Puct | Gumbel  # of one ply, made once its root is evaluated
ALGORITHMS: dict[str, type[Algorithm]] = {"gumbel": Gumbel, "puct": Puct}
