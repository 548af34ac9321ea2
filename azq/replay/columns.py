"""Which targets samples carry beside policy and value: only those that a game declares and a network learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

NO_REPLY = 0xFFFF  # no player but the mover acts later, or that ply was not searched


class Declared(Protocol):
    """What a game says of the targets it has; `azq._core.Game` fulfils it."""

    def outcome_combination(self) -> tuple[NDArray[np.float32], float] | None: ...
    def num_hidden(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Columns:
    """The optional columns of samples; a size of 0 and False mean that the column is not there."""

    reply: bool = False
    margin: bool = False
    outcomes: int = 0  # K
    hidden: int = 0  # F facts, packed in ceil(F / 8) bytes

    @classmethod
    def of(cls, game: Declared, auxiliary: Sequence[str]) -> Columns:
        """Those of a network's auxiliary heads, and the outcomes wherever the game has them."""
        combination = game.outcome_combination()
        outcomes = len(combination[0]) if combination else 0
        return cls("reply" in auxiliary, "margin" in auxiliary, outcomes, game.num_hidden() if "hidden" in auxiliary else 0)

    def shapes(self) -> dict[str, tuple[type[np.generic], tuple[int, ...]]]:
        """Element type and shape of one sample's entry, by the name of each column that is there."""
        shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {}
        if self.reply:
            shapes["reply"] = (np.uint16, ())
        if self.margin:
            shapes["margin"] = (np.float32, ())
        if self.outcomes:
            shapes["outcomes"] = (np.float32, (self.outcomes,))
        if self.hidden:
            shapes["hidden"] = (np.uint8, ((self.hidden + 7) // 8,))
        return shapes


NO_COLUMNS = Columns()
