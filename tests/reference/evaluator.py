"""A fake evaluator: logits and values from a hash of the packed observation, the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class HashEvaluator:
    """Deterministic and arbitrary; `spread` scales the logits, `seed` gives another evaluator."""

    def __init__(self, num_actions: int, *, seed: int = 0, spread: float = 2.0, value_size: int = 1) -> None:
        self._num_actions = num_actions
        self._value_size = value_size
        self._seed = seed
        self._spread = spread

    def __call__(self, packed: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        """Logits (L, A) and values (L, V) of packed observations (L, P)."""
        key = np.full(len(packed), 0x9E3779B97F4A7C15 + self._seed, np.uint64)
        for byte in packed.T:
            key = _mix(key ^ byte.astype(np.uint64))
        columns = [_mix(key + np.uint64(i)) for i in range(self._num_actions + self._value_size)]
        numbers = np.stack([(column >> np.uint64(48)).astype(np.float32) / 32768.0 - 1.0 for column in columns], axis=1)
        logits = (numbers[:, : self._num_actions] * self._spread).astype(np.float16)
        return logits, numbers[:, self._num_actions :].astype(np.float16)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
