"""A node of the search in Python, and what is decided from its statistics; names and formulas as in azq/core/include/azq.

Values are the node's own actor's. Letters: E legal actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq._core import SearchConfig, State


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
class Plan:
    """What a ply fixes at its root."""

    noisy_logits: NDArray[Any]  # (E,)
    candidate: NDArray[np.bool_]  # (E,)
    schedule: list[int]


@dataclass(slots=True)
class Choice:
    """What a spent search says; edges count the root's legal actions."""

    edge: int
    best_edge: int
    weights: NDArray[Any]  # (E,) the policy target
    root_value: float


def select_puct(node: Node, config: SearchConfig) -> int:
    """argmax of Q + c_puct P sqrt(N) / (1 + n), unvisited actions at the mean less fpu_reduction."""
    value = np.where(node.visits > 0, node.q, node.mean - config.fpu_reduction)
    return int(np.argmax(value + config.c_puct * math.sqrt(node.total) * node.prior / (1 + node.visits)))


def completed(node: Node, config: SearchConfig) -> tuple[NDArray[Any], float]:
    """Completed Q (E,) and the scale of sigma(q) = scale * (q + 1) (Gumbel AlphaZero, appendix D)."""
    visited = node.visits > 0
    total = int(node.visits.sum())
    mixed = node.raw_value
    if total:
        weighted = float((node.prior * node.q)[visited].sum() / node.prior[visited].sum())
        mixed = (mixed + total * weighted) / (1 + total)
    scale = (config.c_visit + int(node.visits.max())) * config.c_scale * 0.5
    return np.where(visited, node.q, mixed), scale


def improved(node: Node, config: SearchConfig) -> tuple[NDArray[Any], NDArray[Any], float]:
    """The improved policy (E,), completed Q (E,) and sigma's scale."""
    q, scale = completed(node, config)
    scores = node.logits + scale * (q + 1.0)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum(), q, scale


def select_gumbel(node: Node, config: SearchConfig) -> int:
    """Below the root: argmax of pi'(a) - n(a) / (1 + sum n)."""
    policy, _, _ = improved(node, config)
    return int(np.argmax(policy - node.visits / node.total))


def prepare(root: Node, config: SearchConfig, rng: np.random.Generator) -> Plan:
    """Gumbel-top-k: the candidates are the actions with the largest g + logit."""
    noisy = root.logits + (config.gumbel_scale * rng.gumbel(size=len(root.actions)) if config.gumbel_scale > 0 else 0.0)
    count = min(len(noisy), config.max_considered_actions)
    candidate = np.zeros(len(noisy), np.bool_)
    candidate[np.argsort(-noisy, kind="stable")[:count]] = True
    return Plan(noisy, candidate, considered_visits(count, config.num_simulations))


def considered_visits(candidates: int, num_simulations: int) -> list[int]:
    """Sequential halving as a sequence: at each simulation, how many visits the competing candidates have (mctx, seq_halving.py)."""
    if candidates <= 1:
        return list(range(num_simulations))
    rounds, sequence, visits, left = math.ceil(math.log2(candidates)), [], [0] * candidates, candidates  # type: ignore[var-annotated]
    while len(sequence) < num_simulations:
        for _ in range(max(1, num_simulations // (rounds * left))):
            sequence += visits[:left]
            visits = [count + (number < left) for number, count in enumerate(visits)]
        left = max(2, left // 2)
    return sequence[:num_simulations]


def select_root(root: Node, config: SearchConfig, plan: Plan, simulation: int) -> int:
    """At the root: among the candidates whose turn it is, argmax of g + logit + sigma(completed q)."""
    q, scale = completed(root, config)
    competes = plan.candidate & (root.visits == plan.schedule[simulation])
    return int(np.argmax(np.where(competes, plan.noisy_logits + scale * (q + 1.0), -np.inf)))


def decide_gumbel(root: Node, config: SearchConfig, plan: Plan) -> Choice:
    """The improved policy as target; plays the survivor of sequential halving."""
    policy, q, scale = improved(root, config)
    most = root.visits == root.visits.max()
    edge = int(np.argmax(np.where(most, plan.noisy_logits + scale * (q + 1.0), -np.inf)))
    best = int(np.argmax(np.where(most, root.logits + scale * (q + 1.0), -np.inf)))
    return Choice(edge, best, policy, float(np.clip((policy * q).sum(), -1.0, 1.0)))


def decide_puct(root: Node, config: SearchConfig, rng: np.random.Generator | None) -> Choice:
    """The visit distribution as target; plays a draw from visits^(1 / temperature), without `rng` the most visited."""
    weights = root.visits / root.visits.sum() if root.visits.any() else root.prior / root.prior.sum()
    best = int(np.argmax(weights))
    edge = best
    if rng is not None:
        powers = (weights / weights.max()) ** (1.0 / config.temperature)
        edge = int(rng.choice(len(powers), p=powers / powers.sum()))
    return Choice(edge, best, weights, root.mean)
