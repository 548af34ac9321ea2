"""Gumbel AlphaZero (Danihelka et al., ICLR 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reference.config import Settings
from reference.decision import Decision, decide_proven, normalised
from reference.float32 import F, clamp, exp, lane_sum
from reference.rng import Rng
from reference.tree import Chooser, Edge, best


def considered_visits(candidates: int, num_simulations: int) -> list[int]:
    """mctx's sequence: at each simulation, the number of visits that the competing candidates have."""
    if candidates <= 1:
        return list(range(num_simulations))
    rounds = math.ceil(math.log2(candidates))
    sequence: list[int] = []
    visits = [0] * candidates
    left = candidates
    while len(sequence) < num_simulations:
        for _ in range(max(1, num_simulations // (rounds * left))):
            sequence.extend(visits[:left])
            for i in range(left):
                visits[i] += 1
        left = max(2, left // 2)
    return sequence[:num_simulations]


@dataclass
class Plan:
    """What a ply fixes at its root."""

    noisy_logits: list[F]
    kept_visits: list[int]
    candidates: list[bool]
    schedule: list[int]


def prepare(root: Chooser, settings: Settings, rng: Rng) -> Plan:
    """Draws the Gumbel noise and fixes the candidates: the largest g + logit."""
    noisy = [settings.gumbel_scale * rng.gumbel() + edge.logit for edge in root.edges]
    count = min(len(root.edges), settings.max_considered_actions)
    ranked = sorted(range(len(noisy)), key=lambda i: (-noisy[i], i))
    candidates = [i in ranked[:count] for i in range(len(noisy))]
    return Plan(noisy, [edge.visits for edge in root.edges], candidates, considered_visits(count, settings.num_simulations))


def complete(node: Chooser, settings: Settings) -> tuple[list[F], F]:
    """Completed Q for the actor, and the scale of sigma(q) = scale * (q + 1)."""
    total = sum(edge.visits for edge in node.edges)
    mixed = node.raw_value
    if total > 0:
        priors = [edge.prior if edge.visits > 0 else F(0.0) for edge in node.edges]
        weighted = lane_sum([p * edge.q for p, edge in zip(priors, node.edges, strict=True)]) / lane_sum(priors)
        mixed = (mixed + F(total) * weighted) / (F(1.0) + F(total))
    completed = [node.sign * (edge.q if edge.visits > 0 else mixed) for edge in node.edges]
    most = max(edge.visits for edge in node.edges)
    return completed, (settings.c_visit + F(most)) * settings.c_scale / seen_range(completed, settings)


def seen_range(values: list[F], settings: Settings) -> F:
    """What counts as the whole range of q."""
    return F(2.0) if settings.q_range >= F(2.0) or not values else max(max(values) - min(values), F(settings.q_range))


def improved_policy(node: Chooser, completed: list[F], scale: F) -> tuple[list[F], F]:
    """exp(logit + sigma(q)), unnormalised, and the sum."""
    scores = [edge.logit + scale * (q + F(1.0)) for edge, q in zip(node.edges, completed, strict=True)]
    weights = [exp(score - max(scores)) for score in scores]
    return weights, lane_sum(weights)


def select(node: Chooser, settings: Settings) -> Edge:
    """Below the root: argmax of pi'(a) - n(a) / (1 + sum n); solved children are left out."""
    completed, scale = complete(node, settings)
    weights, total = improved_policy(node, completed, scale)
    started = F(node.visits + node.in_flight)
    scores: list[F | None] = []
    for edge, weight in zip(node.edges, weights, strict=True):
        score = weight / total - F(edge.visits + edge.in_flight) / started
        scores.append(None if edge.solved() else score)
    return node.edges[best(scores)]


def select_root(root: Chooser, settings: Settings, plan: Plan, simulation: int) -> Edge:
    """At the root: sequential halving."""
    completed, scale = complete(root, settings)
    considered = plan.schedule[simulation]
    scores: list[F | None] = []
    for i, edge in enumerate(root.edges):
        competes = plan.candidates[i] and edge.visits + edge.in_flight - plan.kept_visits[i] == considered
        scores.append(plan.noisy_logits[i] + scale * (completed[i] + F(1.0)) if competes else None)
    return root.edges[best(scores)]


def survivor(root: Chooser, plan: Plan, logits: list[F], completed: list[F], scale: F) -> int:
    """Most visits in this ply, then the largest score; never an action proven lost."""
    ranks = [
        (edge.visits - plan.kept_visits[i], logits[i] + scale * (completed[i] + F(1.0)), -i)
        for i, edge in enumerate(root.edges)
        if not edge.lost(root.sign)
    ]
    return -max(ranks)[2]


def decide(root: Chooser, settings: Settings, plan: Plan, rng: Rng) -> Decision:
    """Policy target: the improved policy."""
    if root.solved():
        return decide_proven(root, plan.noisy_logits, False, rng)
    completed, scale = complete(root, settings)
    weights, total = improved_policy(root, completed, scale)
    value = F(0.0)
    for weight, q in zip(weights, completed, strict=True):
        value = value + weight / total * q
    action = root.edges[survivor(root, plan, plan.noisy_logits, completed, scale)].action
    best_action = root.edges[survivor(root, plan, [edge.logit for edge in root.edges], completed, scale)].action
    root_value = root.sign * clamp(root.sign * value, root.lower, root.upper)
    return Decision(normalised(weights), action, best_action, root_value, False)
