"""The wall clock as every message tells it."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since 1970, UTC; it may jump where somebody sets the clock, so durations are never measured with it."""
    return time.time_ns() // 1_000_000
