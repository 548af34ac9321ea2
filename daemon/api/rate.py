"""How fast one caller may ask: a token bucket each. The rule is pure; the limiter keeps the buckets, as many as fit its bound."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_CALLERS = 4096


@dataclass(frozen=True, slots=True)
class Bucket:
    """Requests that may still be made at a moment of the monotonic clock."""

    level: float
    at_s: float


def take(bucket: Bucket, now_s: float, per_s: float, burst: float) -> tuple[Bucket, float]:
    """The bucket after one request, and 0; or the bucket unchanged in level, and the seconds until a request is free again."""
    level = min(burst, bucket.level + max(0.0, now_s - bucket.at_s) * per_s)
    if level >= 1.0:
        return Bucket(level - 1.0, now_s), 0.0
    return Bucket(level, now_s), (1.0 - level) / per_s


class Limiter:
    """One bucket a caller; beyond `most_callers` the one that asked longest ago is forgotten. Belongs to one event loop."""

    def __init__(
        self, per_s: float, burst: int, *, clock_s: Callable[[], float] = time.monotonic, most_callers: int = MOST_CALLERS
    ) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._clock_s = clock_s
        self._most_callers = most_callers
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, caller: str) -> int:
        """0 when the caller may ask now, else whole seconds after which it may."""
        now_s = self._clock_s()
        bucket, wait_s = take(self._buckets.pop(caller, Bucket(self._burst, now_s)), now_s, self._per_s, self._burst)
        self._buckets[caller] = bucket
        while len(self._buckets) > self._most_callers:
            self._buckets.popitem(last=False)
        return math.ceil(wait_s)
