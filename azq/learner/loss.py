"""The loss of AlphaZero (Silver et al., Science 2018, Methods; weight decay is the optimiser's part)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import log_softmax


def losses(logits: Tensor, values: Tensor, policy_targets: Tensor, value_targets: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
    """Policy cross-entropy over legal actions and mean squared value error, both float32 scalars.

    `B` batch, `A` actions, `V` values: logits, policy_targets and legal (bool) are (B, A); values and value_targets (B, V).
    """
    # The lowest finite number and not -inf: 0 * -inf would be NaN where an illegal action has target 0.
    log_policy = log_softmax(logits.float().masked_fill(~legal, torch.finfo(torch.float32).min), dim=1)
    return -(policy_targets * log_policy).sum(dim=1).mean(), (values.float() - value_targets).square().mean()
