"""The seam between search and whatever evaluates its leaves.

`submit` then `result`, so that two groups of games can take turns: one is searched while the other is evaluated.
Implementations: `UniformEvaluator` here, `azq.inference.ask.local.LocalEvaluator`, `azq.inference.ask.client.StreamEvaluator`.
Letters: L leaves, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from azq.wire.messages import LATEST


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Priors and values of L leaves, all by one weight version."""

    logits: NDArray[np.float16]  # (L, A), unmasked; 0 where not requested
    values: NDArray[np.float16]  # (L, V) in [-1, 1], for the player to move (V = 1) or per seat
    weight_version: int


class Evaluator(Protocol):
    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        """Starts the evaluation of (L, P) observations and returns its handle; the caller may reuse the arrays at once.

        Who says with bits (L, ceil(A / 8)) which actions are `legal` may get logits of 0 for all others.
        """

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        """The evaluation, or None if it is not there after `timeout_s` (ask again). Re-sends by itself.

        Raises `EvaluatorFailure` when an inference worker answered with a named failure, `EvaluationRefused` where no answer will come.
        """

    def close(self) -> None:
        """Releases connections."""

    @property
    def resent(self) -> int:
        """Requests that had to be sent again."""


@runtime_checkable
class WithOutcomes(Protocol):
    """An evaluator that knows the distribution of outcomes, where the game has one."""

    def outcomes(self, packed: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Probabilities (B, K) for the players to move."""


class UniformEvaluator:
    """Knows nothing: equal logits, value 0. The double of every evaluator."""

    resent = 0

    def __init__(self, num_actions: int, value_size: int = 1) -> None:
        self._num_actions = num_actions
        self._value_size = value_size
        self._counts: dict[int, int] = {}
        self._next = 0

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        self._next += 1
        self._counts[self._next] = len(packed)
        return self._next

    def result(self, handle: int, *, timeout_s: float) -> Evaluation:
        count = self._counts.pop(handle)
        return Evaluation(np.zeros((count, self._num_actions), np.float16), np.zeros((count, self._value_size), np.float16), 0)

    def close(self) -> None:
        """Nothing to release."""
