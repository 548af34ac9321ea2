"""What a fault leaves behind: the question whether the harmed part works again, and the end of a harm that lasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _nothing() -> None:
    """For a harm that ends by itself."""


@dataclass(slots=True)
class Harm:
    """A fault that was made; `lift` ends it after `lasts_s`, or where that is 0 as soon as it has healed."""

    healed: Callable[[], bool]
    lasts_s: float = 0.0
    lift: Callable[[], None] = _nothing
    search_lost_s: float | None = None  # of a killed self-play worker: since its last journal write

    def end(self) -> None:
        """Lifts it, once."""
        lift, self.lift = self.lift, _nothing
        lift()
