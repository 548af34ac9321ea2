"""Where a run ends: after so many minutes, games, steps or so much money, whichever comes first. Pure; on the wire a dict, `until`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from azq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Done:
    """What a run has behind it, in the units of its goals."""

    minutes: float  # spent running
    games: float  # finished
    steps: float  # of training
    money: float = 0.0  # spent on its machines, as far as their prices are known

    @classmethod
    def of(cls, active_ms: int, games: int, steps: int, money: float = 0.0) -> Done:
        """From the run's active time, counts and cost."""
        return cls(active_ms / 60_000, games, steps, money)


NAMES = tuple(Done.__slots__)
BUDGET_SPENT = "budget spent"  # how the reason of a run begins that the fleet's budget ended


def is_spent(reason: str) -> bool:
    """Whether a run ended by what may be spent, so that its machines are to end, too."""
    return reason.startswith(BUDGET_SPENT) or "money=" in reason


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals of a run by name; empty: it has no end."""

    until: Mapping[str, float]

    @classmethod
    def parse(cls, text: str | None) -> Goals:
        """`minutes=5`, or several, comma-separated. Raises `ConfigError`."""
        until: dict[str, float] = {}
        for part in filter(None, (text or "").split(",")):
            name, _, value = part.partition("=")
            try:
                limit = float(value)
            except ValueError:
                limit = 0.0
            if name not in NAMES or limit <= 0:
                raise ConfigError(f"--until {part!r} is not one of minutes=M, games=N, steps=N, money=X with a positive number")
            until[name] = limit
        return cls(until)

    def reached(self, done: Done) -> str:
        """Which of them a run has reached, in words; empty where none."""
        return ", ".join(f"{name}={limit:g} reached" for name, limit in self.until.items() if getattr(done, name, 0) >= limit)

    def progress(self, done: Done) -> float:
        """Share of the run's horizon that is behind, in [0, 1]: that of the nearest end; 0 without any."""
        shares = [getattr(done, name) / limit for name, limit in self.until.items() if name in NAMES and limit > 0]
        return min(1.0, max(shares, default=0.0))

    def first_end(self, done: Done, per_s: Mapping[str, float]) -> tuple[str, float | None]:
        """The goal that is reached first and in how many seconds; `per_s` is the present pace by goal, that of minutes is the clock's.

        Empty and None where there is no end at this pace.
        """
        pace = {**per_s, "minutes": 1 / 60}
        ends = [
            (max(0.0, limit - getattr(done, goal)) / pace[goal], f"{goal}={limit:g}")
            for goal, limit in self.until.items()
            if pace.get(goal)
        ]
        in_s, goal = min(ends, default=(None, ""))
        return goal, in_s

    def later(self, done: Done) -> dict[str, float]:
        """The same goals, counted from where a run stands."""
        return {name: limit + getattr(done, name) for name, limit in self.until.items()}
