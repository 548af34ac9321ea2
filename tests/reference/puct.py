"""PUCT: selection and targets of AlphaZero (Silver et al., Science 362, 2018)."""

from __future__ import annotations

import numpy as np

from reference.config import Settings
from reference.decision import Decision, decide_proven, draw, normalised
from reference.float32 import F, clamp, exp, log, plain_sum
from reference.gumbel import seen_range
from reference.rng import Rng
from reference.tree import Chooser, Edge, best


def select(node: Chooser, settings: Settings, *, at_root: bool) -> Edge:
    """argmax of Q + c_puct * P * sqrt(N) / (1 + n); solved children are left out, at the root only lost ones."""
    visited = [edge.q for edge in node.edges if edge.visits > 0]
    half = F(0.5) * (seen_range(visited, settings) if visited else min(settings.q_range, F(2.0)))
    exploration = settings.c_puct * np.sqrt(F(node.visits + node.in_flight)) * half
    urgency = node.sign * node.mean - settings.fpu_reduction * half
    scores: list[F | None] = []
    for edge in node.edges:
        value = node.sign * edge.q if edge.visits > 0 else urgency
        score = value + exploration * edge.prior / F(1 + edge.visits + edge.in_flight)
        left_out = edge.lost(node.sign) if at_root else edge.solved()
        scores.append(None if left_out else score)
    return node.edges[best(scores)]


def add_noise(root: Chooser, settings: Settings, rng: Rng) -> None:
    """Mixes Dirichlet noise into the root's priors."""
    fraction = settings.dirichlet_fraction
    if fraction <= F(0.0):
        return
    noise = rng.dirichlet(F(settings.dirichlet_alpha), len(root.edges))
    for edge, part in zip(root.edges, noise, strict=True):
        edge.prior = (F(1.0) - fraction) * edge.prior + fraction * part


def decide(root: Chooser, settings: Settings, ply: int, rng: Rng) -> Decision:
    """Policy target: the visit distribution."""
    explores = ply < settings.temperature_plies and bool(settings.temperature > F(0.0))
    if root.solved():
        return decide_proven(root, None, explores, rng)
    weights = [F(0.0) if edge.lost(root.sign) else F(edge.visits) for edge in root.edges]
    if plain_sum(weights) == F(0.0):
        weights = [F(0.0) if edge.lost(root.sign) else edge.prior for edge in root.edges]
    policy = normalised(weights)
    most = best(list(weights))
    if explores and settings.temperature != F(1.0):
        weights = [exp(log(w / weights[most]) / settings.temperature) if w > F(0.0) else F(0.0) for w in weights]
    played = draw(weights, rng) if explores else most
    value = root.sign * clamp(root.mean, root.lower, root.upper)
    return Decision(policy, root.edges[played].action, root.edges[most].action, value, False)
