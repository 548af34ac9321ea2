"""Training samples: observation, policy target, value target, legal actions, and the further targets that a game declares.

Letters: N samples, P bytes of a packed observation, A actions, V values, M = ceil(A / 8) bytes of a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from azq.wire.messages import SampleEvent

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


class Rules(Declared, Protocol):
    """What sampling asks of a game; `azq._core.Game` fulfils it."""

    def num_distinct_actions(self) -> int: ...
    def num_players(self) -> int: ...
    def packed_size(self) -> int: ...
    def value_size(self) -> int: ...
    def replay(self, actions: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]: ...
    def targets(self, actions: NDArray[np.uint16]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Samples:
    """N samples in flat arrays."""

    packed: NDArray[np.uint8]  # (N, P)
    policies: NDArray[np.float16]  # (N, A), sums to 1 over legal actions
    values: NDArray[np.float32]  # (N, V) for the player to move, then for the seats after him
    masks: NDArray[np.uint8]  # (N, M) legal actions, little bit order
    reply: NDArray[np.uint16] | None = None  # (N,) what the next other player did best, or NO_REPLY
    margin: NDArray[np.float32] | None = None  # (N,) of the player to move
    outcomes: NDArray[np.float32] | None = None  # (N, K) of the player to move
    hidden: NDArray[np.uint8] | None = None  # (N, ceil(F / 8)) facts hidden from the player to move, little bit order

    def __len__(self) -> int:
        return len(self.packed)


def count_samples(event: SampleEvent) -> int:
    """Plies of a game that carry targets."""
    return int(np.count_nonzero(np.frombuffer(event.record.simulations, "<u2")))


def count_trained(game: Rules, event: SampleEvent) -> int:
    """Samples that `samples_of` makes of a game it accepts."""
    return 0 if game.targets(np.frombuffer(event.record.actions, "<u2"))["truncated"] else count_samples(event)


def mean_weight_version(*events: SampleEvent) -> float:
    """Mean weight version behind the searched plies of games; 0 without any."""
    versions = np.frombuffer(b"".join(event.record.weight_versions for event in events), "<u4")
    simulations = np.frombuffer(b"".join(event.record.simulations for event in events), "<u2")
    searched = versions[simulations > 0]
    return float(searched.mean()) if len(searched) else 0.0
