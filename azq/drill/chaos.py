"""Any fault at random for a while, and what that costs: work done meanwhile against work done undisturbed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from azq.drill.scenarios import Scenario
from azq.drill.system import System

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


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates per second, undisturbed and in chaos."""

    undisturbed_games: float
    undisturbed_simulations: float
    games: float
    simulations: float

    @classmethod
    def of(cls, first: Work, second: Work, third: Work) -> Throughput:
        """From the work done at the start, when the chaos began, and at its end."""
        return cls(*_rates(first, second), *_rates(second, third))

    def values(self) -> dict[str, Any]:
        """The public figures."""
        return {
            "throughput_share": {
                "games": _share(self.games, self.undisturbed_games),
                "simulations": _share(self.simulations, self.undisturbed_simulations),
            },
            "undisturbed_per_s": {"games": round(self.undisturbed_games, 2), "simulations": round(self.undisturbed_simulations, 1)},
            "chaos_per_s": {"games": round(self.games, 2), "simulations": round(self.simulations, 1)},
        }

    def as_line(self) -> str:
        """The same for people."""
        games, simulations = _share(self.games, self.undisturbed_games), _share(self.simulations, self.undisturbed_simulations)
        return (
            f"throughput in chaos: {self.games:.1f} games/s of {self.undisturbed_games:.1f} undisturbed ({games:.1%}), "
            f"{self.simulations:.0f} simulations/s of {self.undisturbed_simulations:.0f} ({simulations:.1%})"
        )


def measure(system: System) -> Work:
    """The work done by now."""
    counts = system.until(system.counts, "the ledger", 60.0)
    return Work(counts.finished, system.evidence.read().simulations, time.monotonic())


def undisturbed(system: System, chaos: Chaos) -> Work:
    """Leaves the system alone for a part of the time, once it is warm; returns the work done before."""
    _rest(system, time.monotonic() + WARM_UP_S)
    first = measure(system)
    _rest(system, first.at_s + UNDISTURBED_SHARE * chaos.lasts_s)
    return first


def faults(system: System, scenarios: Sequence[Scenario], chaos: Chaos, rng: random.Random) -> Iterator[Scenario]:
    """Faults at random until the time is over, and then the rest of the last one's time."""
    end = time.monotonic() + chaos.lasts_s
    while time.monotonic() < end:
        next_s = time.monotonic() + chaos.every_s
        yield rng.choice(list(scenarios))
        _rest(system, min(next_s, end))


def _rest(system: System, until_s: float) -> None:
    if (seconds := until_s - time.monotonic()) > 0:
        system.until(lambda: time.monotonic() >= until_s, "rest", seconds + 60.0)


def _rates(before: Work, after: Work) -> tuple[float, float]:
    seconds = max(after.at_s - before.at_s, 1e-9)
    return (after.games - before.games) / seconds, (after.simulations - before.simulations) / seconds


def _share(rate: float, whole: float) -> float:
    return round(rate / whole, 4) if whole else 0.0
