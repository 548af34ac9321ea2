"""Symmetries of a game, applied to a batch on the device: each sample is turned by one drawn for it.

Letters: B batch, C planes, H rows, W columns, A actions, G symmetries (identity first).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Symmetric(Protocol):
    """What augmentation asks of a game; `azq._core.Game` fulfils it."""

    def num_symmetries(self) -> int: ...
    def action_permutation(self, symmetry: int) -> NDArray[np.int32]: ...
    def plane_permutation(self, symmetry: int) -> NDArray[np.int32]: ...


class Symmetries:
    """The permutations of a game's cells and actions as index tables on the device."""

    def __init__(self, game: Symmetric, device: torch.device) -> None:
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
        """Single actions (B,) under the symmetries `chosen` (B,); what is no action stays as it is."""
        known = actions < self._images.shape[1]
        return torch.where(known, self._images[chosen, actions.where(known, 0)], actions)
