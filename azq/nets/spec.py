"""What a network must know of a game, so that networks are built and tested without the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from azq.errors import ConfigError


class GameShape(Protocol):
    """The part of `azq._core.Game` that fixes a network's inputs and outputs."""

    def num_distinct_actions(self) -> int: ...
    def observation_planes(self) -> tuple[int, int, int]: ...
    def num_scalars(self) -> int: ...
    def value_size(self) -> int: ...
    def outcome_combination(self) -> tuple[NDArray[np.float32], float] | None: ...
    def has_margin(self) -> bool: ...
    def num_hidden(self) -> int: ...
    def action_layout(self) -> str: ...
    def token_groups(self) -> dict[str, NDArray[np.int32]]: ...


@dataclass(frozen=True, slots=True)
class NetSpec:
    """Shapes at a network's two ends: C planes of H x W bits and S scalars in, A logits and V values out, and what heads may predict."""

    planes: int  # C
    rows: int  # H
    cols: int  # W
    scalars: int  # S
    num_actions: int  # A
    value_size: int  # V
    outcome_weights: tuple[float, ...] = ()  # (K,): the value is outcome_bias + outcome_weights . outcomes; empty: a plain value head
    outcome_bias: float = 0.0
    num_hidden: int = 0  # F facts that the player to move does not see
    has_margin: bool = False
    action_layout: str = ""  # where actions lie on the board: cells, columns or nowhere
    token_groups: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = ()  # by name, of each token the places of its bits

    @classmethod
    def of(cls, game: GameShape | NetSpec) -> NetSpec:
        """The spec of a game, or this one; raises ConfigError for one that declares outcomes and a value per seat."""
        if isinstance(game, NetSpec):
            return game
        weights, bias = game.outcome_combination() or ((), 0.0)
        if len(weights) and game.value_size() != 1:
            raise ConfigError(
                f"the game declares outcomes and {game.value_size()} values; outcomes combine to the one value of two players"
            )
        groups = tuple((name, tuple(map(tuple, places.tolist()))) for name, places in game.token_groups().items())
        ends = *game.observation_planes(), game.num_scalars(), game.num_distinct_actions(), game.value_size()
        says = game.num_hidden(), game.has_margin(), game.action_layout(), groups
        return cls(*ends, tuple(float(weight) for weight in weights), float(bias), *says)

    @property
    def num_outcomes(self) -> int:
        """K."""
        return len(self.outcome_weights)

    @property
    def auxiliary(self) -> tuple[str, ...]:
        """Names of the auxiliary heads that the game has targets for."""
        return ("advantage", *(["margin"] if self.has_margin else []), *(["hidden"] if self.num_hidden else []))

    @property
    def cells(self) -> int:
        """H * W."""
        return self.rows * self.cols

    @property
    def action_places(self) -> int:
        """Places of the board that an action may name: columns or cells."""
        return self.cols if self.action_layout == "columns" else self.cells

    @property
    def action_planes(self) -> int:
        """Boards full of actions; those beyond them lie nowhere, as a pass."""
        return self.num_actions // self.action_places if self.action_layout else 0

    @property
    def plane_bytes(self) -> int:
        """Bytes of a packed observation that hold the planes' bits."""
        return (self.planes * self.cells + 7) // 8

    @property
    def packed_size(self) -> int:
        """P: bytes of a packed observation."""
        return self.plane_bytes + self.scalars
