"""The samples the learner draws from: the newest ones, in flat ring buffers.

Letters: N samples, B batch, P bytes of a packed observation, A actions, V values, M bytes of a mask.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from azq.config import LearnerConfig
from azq.replay.samples import Rules, Samples, samples_of
from azq.replay.segments import SegmentLog
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent


def window_size(total: int, config: LearnerConfig) -> int:
    """Samples to draw from when `total` were ever inserted: the newest share, within its bounds and what is there."""
    wanted = max(config.min_window, min(config.max_window, int(config.window_fraction * total)))
    return min(total, wanted, config.max_window)


class Window:
    """Ring of the newest `capacity` samples; memory is taken up as samples come, (P + 2 A + 4 V + M) bytes each."""

    def __init__(self, game: Rules, capacity: int) -> None:
        actions = game.num_distinct_actions()
        self._capacity = capacity
        self._total = 0
        self._packed = np.zeros((capacity, game.packed_size()), np.uint8)
        self._policies = np.zeros((capacity, actions), np.float16)
        self._values = np.zeros((capacity, game.value_size()), np.float32)
        self._masks = np.zeros((capacity, (actions + 7) // 8), np.uint8)

    def __len__(self) -> int:
        return min(self._total, self._capacity)

    @property
    def total(self) -> int:
        """Samples ever added."""
        return self._total

    @property
    def bytes_per_sample(self) -> int:
        """Memory of one sample."""
        return sum(int(ring[0].nbytes) for ring in (self._packed, self._policies, self._values, self._masks))

    def add(self, samples: Samples) -> None:
        """Adds samples, oldest first; the oldest of the ring make room."""
        count = len(samples)
        keep = min(count, self._capacity)
        places = (self._total + count - keep + np.arange(keep)) % self._capacity
        self._packed[places] = samples.packed[count - keep :]
        self._policies[places] = samples.policies[count - keep :]
        self._values[places] = samples.values[count - keep :]
        self._masks[places] = samples.masks[count - keep :]
        self._total += count

    def newest(self, ages: NDArray[np.int64]) -> Samples:
        """Samples by age, 0 the newest."""
        places = (self._total - 1 - ages) % self._capacity
        return Samples(self._packed[places], self._policies[places], self._values[places], self._masks[places])

    def sample(self, rng: np.random.Generator, batch: int, size: int) -> Samples:
        """`batch` samples drawn uniformly, with replacement, from the newest `size`; raises `ValueError` when there are none."""
        size = min(size, len(self))
        if size < 1:
            raise ValueError("the window is empty")
        return self.newest(rng.integers(0, size, batch))


def rebuild(window: Window, segments: SegmentLog, game: Rules, root_value_fraction: float, *, capacity: int) -> None:
    """Fills an empty window from the log's newest games, so that it draws what the window before a restart drew.

    Raises `WireError` or `IllegalActionError` when the rules no longer accept a stored game.
    """
    for frame in segments.tail(capacity):
        window.add(samples_of(game, decode(frame, SampleEvent), root_value_fraction))
