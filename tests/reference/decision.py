"""What a spent search says."""

from __future__ import annotations

from dataclasses import dataclass

from reference.float32 import F, plain_sum
from reference.rng import Rng
from reference.tree import Chooser, best


@dataclass
class Decision:
    """The answer of one search, for the player to move; `policy` has one entry per legal action."""

    policy: list[F]
    action: int
    best_action: int
    root_value: F
    proven: bool


def normalised(weights: list[F]) -> list[F]:
    """Weights divided by their sum."""
    total = plain_sum(weights)
    return [weight / total for weight in weights]


def draw(weights: list[F], rng: Rng) -> int:
    """An index drawn with probability weight / sum."""
    target = rng.uniform() * plain_sum(weights)
    passed, last = F(0.0), 0
    for i, weight in enumerate(weights):
        if weight <= F(0.0):
            continue
        last = i
        passed = passed + weight
        if target < passed:
            break
    return last


def decide_proven(root: Chooser, noisy_logits: list[F] | None, explores: bool, rng: Rng) -> Decision:
    """A solved root: uniform on the proven-best actions."""
    proven_best = [edge.solved() and bool(edge.q == root.lower) for edge in root.edges]
    uniform = [F(1.0) if is_best else F(0.0) for is_best in proven_best]
    most = best([F(edge.visits) if is_best else None for edge, is_best in zip(root.edges, proven_best, strict=True)])
    if noisy_logits is not None:
        played = best([logit if is_best else None for logit, is_best in zip(noisy_logits, proven_best, strict=True)])
    else:
        played = draw(uniform, rng) if explores else most
    value = root.sign * root.lower
    return Decision(normalised(uniform), root.edges[played].action, root.edges[most].action, value, True)
