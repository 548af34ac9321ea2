"""Which samples a step trains on: a pure function of the run's seed, the rank, the step and the window. Nothing else is random.

So a batch does not depend on when it is gathered, or by which thread, and a resumed learner needs no state of a generator.
Letters: B samples of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from azq.replay.samples import Samples
from azq.replay.window import Window


@dataclass(frozen=True, slots=True)
class Order:
    """One batch that is wanted."""

    step: int  # that trains on it
    rows: int  # B
    size: int  # newest samples of the window that it is drawn from

    @property
    def following(self) -> Order:
        """The batch after it, while nothing changes."""
        return replace(self, step=self.step + 1)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples with the symmetry that each is turned by."""

    samples: Samples
    chosen: NDArray[np.uint8] | None = None  # (B,); None: they stay as they are

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, slots=True)
class Draws:
    """The random numbers of one rank: counter-based, so that those of a step do not depend on the steps before."""

    seed: int
    symmetries: int = 1  # to choose from
    rank: int = 0

    def of(self, order: Order) -> tuple[NDArray[np.int64], NDArray[np.uint8] | None]:
        """Ages (B,) of an order's samples, 0 the newest, drawn uniformly with replacement; and their symmetries (B,), if there are any."""
        rng = np.random.Generator(np.random.Philox(key=[self.seed, self.rank], counter=[0, 0, 0, order.step]))
        ages = rng.integers(0, order.size, order.rows)
        return ages, rng.integers(0, self.symmetries, order.rows, dtype=np.uint8) if self.symmetries > 1 else None


class Feed(Protocol):
    """Hands out batches; `Direct` gathers each when it is asked for, `azq.learner.data.prefetch.Prefetcher` ahead of time."""

    def take(self, order: Order) -> AbstractContextManager[Batch]:
        """The batch of an order, valid within the context."""

    def close(self) -> None:
        """Ends its threads."""


class Direct:
    """Gathers each batch when it is asked for."""

    def __init__(self, window: Window, draws: Draws) -> None:
        self._window = window
        self._draws = draws

    @contextmanager
    def take(self, order: Order) -> Iterator[Batch]:
        """The batch of an order."""
        ages, chosen = self._draws.of(order)
        yield Batch(self._window.newest(ages), chosen)

    def close(self) -> None:
        """Nothing to end."""


Fence = Callable[[], None]  # returns when the device has read a buffer
