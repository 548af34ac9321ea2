"""Any fault at random for a while, and what that costs: work done meanwhile against work done undisturbed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from azq.drill.scenarios import Scenario
from azq.drill.system import READY_S, System

UNDISTURBED_SHARE = 0.25  # of the time of the chaos, before it
WARM_UP_S = 15.0  # games that begin together end together; then they spread


@dataclass(frozen=True, slots=True)
class Chaos:
    """How long, and how often; `every_s` 0: each fault as soon as the one before has healed."""

    lasts_s: float
    every_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What was done by now: finished games, and simulations of the games learned from."""

    games: int
    simulations: int
    at_s: float

    def rates_since(self, before: Work) -> dict[str, float]:
        """What was done per second."""
        seconds = max(self.at_s - before.at_s, 1e-9)
        return {"games": (self.games - before.games) / seconds, "simulations": (self.simulations - before.simulations) / seconds}


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates per second, undisturbed and in chaos."""

    undisturbed: dict[str, float]
    chaos: dict[str, float]

    @classmethod
    def of(cls, first: Work, second: Work, third: Work) -> Throughput:
        """From the work done at the start, when the chaos began, and at its end."""
        return cls(second.rates_since(first), third.rates_since(second))

    def shares(self) -> dict[str, float]:
        """How much of the undisturbed rates was left."""
        return {name: round(self.chaos[name] / whole, 4) if whole else 0.0 for name, whole in self.undisturbed.items()}

    def values(self) -> dict[str, Any]:
        """The public figures."""
        digits = {"games": 2, "simulations": 1}
        return {
            "throughput_share": self.shares(),
            "undisturbed_per_s": {name: round(rate, digits[name]) for name, rate in self.undisturbed.items()},
            "chaos_per_s": {name: round(rate, digits[name]) for name, rate in self.chaos.items()},
        }

    def as_line(self) -> str:
        """The same for people."""
        before, now, shares = self.undisturbed, self.chaos, self.shares()
        return (
            f"throughput in chaos: {now['games']:.1f} games/s of {before['games']:.1f} undisturbed ({shares['games']:.1%}), "
            f"{now['simulations']:.0f} simulations/s of {before['simulations']:.0f} ({shares['simulations']:.1%})"
        )


def measure(system: System) -> Work:
    """The work done by now."""
    counts = system.until(system.counts, "the ledger", READY_S)
    return Work(counts.finished, system.evidence.read().simulations, time.monotonic())


def undisturbed(system: System, chaos: Chaos) -> Work:
    """Leaves the system alone for a part of the time, once it is warm; returns the work done before."""
    system.rest(time.monotonic() + WARM_UP_S)
    first = measure(system)
    system.rest(first.at_s + UNDISTURBED_SHARE * chaos.lasts_s)
    return first


def scenarios_at_random(system: System, scenarios: Sequence[Scenario], chaos: Chaos, rng: random.Random) -> Iterator[Scenario]:
    """Faults at random until the time is over, and then the rest of the last one's time."""
    end = time.monotonic() + chaos.lasts_s
    while time.monotonic() < end:
        next_s = time.monotonic() + chaos.every_s
        yield rng.choice(list(scenarios))
        system.rest(min(next_s, end))
