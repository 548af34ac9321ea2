"""The seam between search and whatever evaluates its leaves.

`submit` then `result`, so that two groups of games can take turns: one is searched while the other is evaluated.
Implementations: `UniformEvaluator` here, `azq.inference.ask.local.LocalEvaluator`, `azq.inference.ask.client.StreamEvaluator`.
Letters: L leaves, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from azq.errors import ConfigError
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


Member = tuple[Evaluator, int]  # and the version of the weights requested of it


class EnsembleEvaluator:
    """Asks each member about every leaf, in one batch each; answers by the newest version's number, whatever version is requested."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._handles: dict[int, list[int]] = {}
        self._evaluations: dict[int, list[Evaluation]] = {}
        self._next = 0

    @property
    def resent(self) -> int:
        """Requests that had to be sent again."""
        return sum(evaluator.resent for evaluator, _ in self._members)

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        self._next += 1
        self._handles[self._next] = [evaluator.submit(packed, legal=legal, weight_version=version) for evaluator, version in self._members]
        self._evaluations[self._next] = []
        return self._next

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        """The mean, or None while a member's evaluation is not there after `timeout_s`. Raises as the members do."""
        until_s, evaluations = time.monotonic() + timeout_s, self._evaluations[handle]
        for (evaluator, _), member_handle in list(zip(self._members, self._handles[handle], strict=True))[len(evaluations) :]:
            evaluation = evaluator.result(member_handle, timeout_s=max(0.0, until_s - time.monotonic()))
            if evaluation is None:
                return None
            evaluations.append(evaluation)
        del self._handles[handle], self._evaluations[handle]
        return mean_of(evaluations)

    def outcomes(self, packed: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Mean probabilities (B, K) of the game's outcomes; raises `ConfigError` where a member has none."""
        rows = [evaluator.outcomes(packed) for evaluator, _ in self._members if isinstance(evaluator, WithOutcomes)]
        if len(rows) < len(self._members):
            raise ConfigError("a member of the ensemble knows no outcomes")
        return np.asarray(np.mean(rows, axis=0), np.float32)

    def close(self) -> None:
        """Closes each member's evaluator."""
        for evaluator in {id(evaluator): evaluator for evaluator, _ in self._members}.values():
            with suppress(RuntimeError):
                evaluator.close()


def joined(evaluator: Evaluator, versions: Sequence[int]) -> Evaluator:
    """An evaluator of these versions' mean; one version's, or an ensemble already, is itself."""
    if len(versions) == 1 or isinstance(evaluator, EnsembleEvaluator):
        return evaluator
    return EnsembleEvaluator([(evaluator, version) for version in versions])


def mean_of(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Mean logits (L, A) and values (L, V), by the newest version's number. Pure."""
    newest = max(evaluation.weight_version for evaluation in evaluations)
    return Evaluation(
        _mean([evaluation.logits for evaluation in evaluations]), _mean([evaluation.values for evaluation in evaluations]), newest
    )


def _mean(arrays: Sequence[NDArray[np.float16]]) -> NDArray[np.float16]:
    return np.asarray(np.mean(arrays, axis=0, dtype=np.float32), np.float16)
