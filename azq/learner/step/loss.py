"""The loss of AlphaZero (Silver et al., Science 2018, Methods; weight decay is the optimiser's part), and of further heads.

Letters: B batch, A actions, V values, K outcomes, F hidden facts, C planes, H rows, W columns, G symmetries (identity first).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax

from azq.games import Game
from azq.nets import Outputs

HEAD_WEIGHTS = {"policy": 1.0, "outcome": 0.5, "advantage": 0.25, "margin": 0.25, "hidden": 0.5}
LEAST_SPREAD = 0.01  # of value targets: where all scores are alike there is nothing to tell apart


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets of a batch; None where samples have no such column."""

    policies: Tensor  # (B, A), sums to 1 over legal actions
    values: Tensor  # (B, V)
    legal: Tensor  # (B, A) bool
    played: Tensor | None = None  # (B,) int64 action
    margin: Tensor | None = None  # (B,)
    outcomes: Tensor | None = None  # (B, K) in [0, 1]
    hidden: Tensor | None = None  # (B, F) 0 or 1


def losses(logits: Tensor, values: Tensor, policy_targets: Tensor, value_targets: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
    """Policy cross-entropy over legal actions and mean squared value error, both float32 scalars.

    Logits, policy_targets and legal (bool) are (B, A); values and value_targets (B, V).
    """
    # The lowest finite number and not -inf: 0 * -inf would be NaN where an illegal action has target 0.
    log_policy = log_softmax(logits.float().masked_fill(~legal, torch.finfo(torch.float32).min), dim=1)
    return -(policy_targets * log_policy).sum(dim=1).mean(), (values.float() - value_targets).square().mean()


def all_losses(outputs: Outputs, targets: Targets, spread: bool = False) -> dict[str, Tensor]:
    """Float32 scalars by head: `policy`, `value`, and those of the further heads that the network has.

    `advantage` is the squared error of what a dueling network says of the action that was played (`_action_values`).
    With `spread` the value's is over the variance of the batch's targets: the part of it that is not explained, however
    near each other scores lie, whose spread moves as a network learns (as the scale of PopArt: van Hasselt et al., NeurIPS 2016).
    `outcome` is a cross-entropy summed over the outcomes, `margin` a squared error, `hidden` a cross-entropy per fact, so that games with
    many cards do not drown the rest.
    """
    policy, value = losses(outputs.logits, outputs.values, targets.policies, targets.values, targets.legal)
    if spread:
        value = value / targets.values.float().var(unbiased=False).clamp(min=LEAST_SPREAD**2)
    by_head = {"policy": policy, "value": value}
    if outputs.outcomes is not None and targets.outcomes is not None:
        per_outcome = binary_cross_entropy_with_logits(outputs.outcomes.float(), targets.outcomes, reduction="none")
        by_head["outcome"] = per_outcome.sum(dim=1).mean()
    if outputs.advantage is not None and targets.played is not None:
        of_played = _action_values(outputs.values, outputs.advantage, targets.policies).gather(1, targets.played[:, None])
        by_head["advantage"] = (of_played - targets.values[:, :1]).square().mean()
    if outputs.margin is not None and targets.margin is not None:
        by_head["margin"] = (outputs.margin.float() - targets.margin).square().mean()
    if outputs.hidden is not None and targets.hidden is not None:
        by_head["hidden"] = binary_cross_entropy_with_logits(outputs.hidden.float(), targets.hidden)
    return by_head


def weighted(by_head: dict[str, Tensor], value_weight: float) -> Tensor:
    """The weighted sum of the heads' losses."""
    return torch.stack([HEAD_WEIGHTS.get(name, value_weight) * loss for name, loss in by_head.items()]).sum()


def _action_values(values: Tensor, advantages: Tensor, policies: Tensor) -> Tensor:
    """Q (B, A) = V + A - the mean of A under the policy, of the player to move (dueling networks: Wang et al., ICML 2016, equation 9).

    The mean there is over all actions alike, so that V becomes the value of playing at random. Under the search's policies V stays what the
    search takes it for, the value of playing on (as the stochastic dueling networks of Wang et al., ICLR 2017, section 4).
    """
    advantages = advantages.float()
    return values[:, :1].float() + advantages - (policies * advantages).sum(1, keepdim=True)


class Symmetries:
    """The permutations of a game's cells and actions as index tables on the device."""

    def __init__(self, game: Game, device: torch.device) -> None:
        group = range(game.num_symmetries())
        # Action a becomes permutation[a], so the image's entry b comes from the inverse at b; cells are given the other way round.
        images = np.stack([game.action_permutation(g) for g in group])
        sources = np.argsort(images, axis=1)
        cells = np.stack([game.plane_permutation(g) for g in group])
        self.count = len(group)
        self._actions = torch.as_tensor(sources.astype(np.int64), device=device)
        self._images = torch.as_tensor(images.astype(np.int64), device=device)
        self._cells = torch.as_tensor(cells.astype(np.int64), device=device)

    def planes(self, planes: Tensor, chosen: Tensor) -> Tensor:
        """Observations (B, C, H, W) under the symmetries `chosen` (B,)."""
        batch, channels, rows, columns = planes.shape
        cells = self._cells[chosen][:, None, :].expand(-1, channels, -1)
        return planes.reshape(batch, channels, rows * columns).gather(2, cells).view(batch, channels, rows, columns)

    def actions(self, values: Tensor, chosen: Tensor) -> Tensor:
        """Values per action (B, A) under the symmetries `chosen` (B,)."""
        return values.gather(1, self._actions[chosen])

    def action(self, actions: Tensor, chosen: Tensor) -> Tensor:
        """Single actions (B,) under the symmetries `chosen` (B,)."""
        return self._images[chosen, actions]
