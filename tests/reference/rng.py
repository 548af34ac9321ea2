"""Counter-based random numbers, as azq/core/include/azq/rng.hpp (Philox4x32-10)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from reference.float32 import F, exp, log

_MASK = 0xFFFFFFFF


class Purpose(IntEnum):
    """What numbers are drawn for."""

    OPENING = 0
    DIRICHLET = 1
    GUMBEL = 2
    TEMPERATURE = 3
    RANDOM_GAME = 4
    UCT = 5
    OPENING_LENGTH = 6
    CHANCE = 7
    SAMPLE = 8


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds on four words (Salmon et al., SC 2011)."""
    x, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k0, b & _MASK, (a >> 32) ^ x[3] ^ k1, a & _MASK]
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return x


class Rng:
    """One stream, keyed by (seed, uid, ply, purpose)."""

    def __init__(self, seed: int, uid: int, ply: int, purpose: Purpose) -> None:
        self._key = [seed & _MASK, seed >> 32]
        self._counter = [uid & _MASK, uid >> 32, ply, purpose << 24]
        self._block: list[int] = []

    def skip(self, blocks: int) -> None:
        """Passes over so many blocks of four numbers; before the first draw."""
        self._counter[3] += blocks

    def next(self) -> int:
        """The next 32 bits."""
        if not self._block:
            self._block = philox(self._counter, self._key)
            self._counter[3] += 1
        return self._block.pop(0)

    def uniform(self) -> F:
        """In (0, 1)."""
        return (F(self.next() >> 9) + F(0.5)) * F(2.0**-23)

    def below(self, bound: int) -> int:
        """In 0 .. bound - 1."""
        return (self.next() * bound) >> 32

    def gumbel(self) -> F:
        """Standard Gumbel."""
        return -log(-log(self.uniform()))

    def normal(self) -> F:
        """Standard normal."""
        while True:
            u = F(2.0) * self.uniform() - F(1.0)
            v = F(2.0) * self.uniform() - F(1.0)
            s = u * u + v * v
            if F(1.17549435e-38) < s < F(1.0):
                return u * F(np.sqrt(F(-2.0) * log(s) / s))

    def gamma(self, alpha: F) -> F:
        """Gamma with unit scale."""
        if alpha < F(1.0):
            boost = exp(log(self.uniform()) / alpha)
            return self.gamma(alpha + F(1.0)) * boost
        d = alpha - F(0.33333334)
        c = F(1.0) / F(np.sqrt(F(9.0) * d))
        while True:
            x = self.normal()
            t = F(1.0) + c * x
            if t <= F(0.0):
                continue
            v = t * t * t
            if log(self.uniform()) < F(0.5) * x * x + d - d * v + d * log(v):
                return d * v

    def dirichlet(self, alpha: F, count: int) -> list[F]:
        """Symmetric Dirichlet of `count` parts."""
        parts = [self.gamma(alpha) for _ in range(count)]
        total = F(0.0)
        for part in parts:
            total = total + part
        return [part / total if total > F(0.0) else F(1.0) / F(count) for part in parts]
