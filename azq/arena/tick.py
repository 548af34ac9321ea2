"""What long work of the arena calls while it waits, so that its caller can renew a lease or end it."""

from __future__ import annotations

from collections.abc import Callable

Tick = Callable[[], None]


def no_tick() -> None:
    """The tick of a caller with nothing to look after."""
