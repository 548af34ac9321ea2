"""A machine on which time passes only while something is evaluated."""

from __future__ import annotations

from collections.abc import Callable


class Machine:
    """A clock that evaluations move."""

    def __init__(self, cost_s: Callable[[int], float]) -> None:
        self.now_s = 0.0
        self.cost_s = cost_s
        self.ran: list[int] = []

    def evaluate(self, size: int) -> None:
        first = size not in self.ran
        self.ran.append(size)
        self.now_s += self.cost_s(size) * (50 if first else 1)  # compiles at first

    def clock_s(self) -> float:
        return self.now_s
