"""What a network must know of a game, so that networks are built and tested without the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class GameShape(Protocol):
    """The part of `azq._core.Game` that fixes a network's inputs and outputs."""

    def num_distinct_actions(self) -> int: ...
    def observation_planes(self) -> tuple[int, int, int]: ...
    def num_scalars(self) -> int: ...
    def value_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NetSpec:
    """Shapes at a network's two ends: C planes of H x W bits and S scalars in, A logits and V values out."""

    planes: int  # C
    rows: int  # H
    cols: int  # W
    scalars: int  # S
    num_actions: int  # A
    value_size: int  # V

    @classmethod
    def of(cls, game: GameShape) -> NetSpec:
        """The spec of a game."""
        planes, rows, cols = game.observation_planes()
        return cls(planes, rows, cols, game.num_scalars(), game.num_distinct_actions(), game.value_size())

    @property
    def cells(self) -> int:
        """H * W."""
        return self.rows * self.cols

    @property
    def plane_bytes(self) -> int:
        """Bytes of a packed observation that hold the planes' bits."""
        return (self.planes * self.cells + 7) // 8

    @property
    def packed_size(self) -> int:
        """P: bytes of a packed observation."""
        return self.plane_bytes + self.scalars
