"""A fake evaluator: logits and values from a hash of the packed observation, the same on every machine."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_START, _ALL = 0x9E3779B97F4A7C15, 2**64 - 1


class HashEvaluator:
    """Deterministic and arbitrary; `spread` scales the logits, `seed` gives another evaluator."""

    def __init__(self, num_actions: int, *, seed: int = 0, spread: float = 2.0, value_size: int = 1) -> None:
        self._num_actions = num_actions
        self._value_size = value_size
        self._seed = seed
        self._spread = spread

    def __call__(self, packed: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        """Logits (L, A) and values (L, V) of packed observations (L, P)."""
        keys = np.array([_key(row.tobytes(), (_START + self._seed) & _ALL) for row in packed], np.uint64)
        columns = np.arange(self._num_actions + self._value_size, dtype=np.uint64)
        numbers = (_mix(keys[:, None] + columns) >> np.uint64(48)).astype(np.float32) / 32768.0 - 1.0
        logits = (numbers[:, : self._num_actions] * self._spread).astype(np.float16)
        return logits, numbers[:, self._num_actions :].astype(np.float16)


@lru_cache(4096)  # what the core asks about, the reference asks about too
def _key(row: bytes, key: int) -> int:
    """All bytes into one number; of few rows, plain numbers are ten times as fast as arrays."""
    for byte in row:
        key ^= byte
        key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 & _ALL
        key = (key ^ (key >> 27)) * 0x94D049BB133111EB & _ALL
        key ^= key >> 31
    return key


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
