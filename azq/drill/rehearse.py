"""Drills: hurt running systems again and again, time their recovery, and compare the ledger with the disk.

In chaos any fault at random for a while, and what that costs: work done meanwhile against work done undisturbed.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azq.drill import deadly_games
from azq.drill.fleet import rehearse_cut
from azq.drill.hosts import why_not
from azq.drill.outcome import Outcome
from azq.drill.rounds import Rounds, Tell
from azq.drill.scenarios import HOSTS, MACHINE, Scenario
from azq.drill.system import READY_S, System
from azq.errors import ConfigError

GAME = "tic_tac_toe"
UNDISTURBED_SHARE = 0.25  # of the time of the chaos, before it
WARM_UP_S = 15.0  # games that begin together end together; then they spread


@dataclass(frozen=True, slots=True)
class Chaos:
    """How long, and how often; `every_s` 0: each fault as soon as the one before has healed."""

    lasts_s: float
    every_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Intent:
    """How drills are rehearsed; `patience` is how many times longer than its bounds anything may take, on machines with other work."""

    rounds: int = 1
    game: str = GAME
    overrides: tuple[str, ...] = ()
    seed: int = 0
    chaos: Chaos | None = None
    patience: float = 1.0


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


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the drills showed; throughput where there was chaos."""

    outcomes: list[Outcome]
    throughput: Throughput | None = None

    def passed(self) -> bool:
        """Whether every drill passed."""
        return all(outcome.passed() for outcome in self.outcomes)


def rehearse(scenarios: Sequence[Scenario], plan: Intent, tell: Tell) -> Rehearsal:
    """Every drill `plan.rounds` times, or any of them at random for a while. Files stay where a drill failed.

    Ledger and disk are compared after each round and at the end; in chaos at the end alone, for it takes seconds in which nothing is
    played. Drills with settings of their own have a system of their own, and take no part in chaos unless nothing else was asked for.
    Drills of hosts have a fleet of their own, take no part in chaos, and are left out where no hosts can be made unless nothing else
    was asked for (`MissingExtra`).
    """
    systems, hosts = by_system(scenarios)
    if plan.chaos is not None and not systems and hosts:
        raise ConfigError("drills of hosts take no part in chaos; leave --minutes out, or name others")
    rehearsal = Rehearsal([])
    for group in systems if plan.chaos is None else systems[:1]:
        also = _rehearse(group, plan, tell)
        rehearsal = Rehearsal([*rehearsal.outcomes, *also.outcomes], also.throughput)
    for scenario in hosts if plan.chaos is None else ():
        if systems and (reason := why_not()):
            tell(f"{scenario.name}: left out: {reason}")
        else:
            rehearsal.outcomes.append(Outcome(scenario, patience=plan.patience))
            rehearse_cut(rehearsal.outcomes[-1], plan.rounds, random.Random(plan.seed), tell)
    return rehearsal


def by_system(scenarios: Sequence[Scenario]) -> tuple[list[list[Scenario]], list[Scenario]]:
    """Drills that share a system, those without settings of their own first, and those of hosts."""
    groups: dict[tuple[bool, str, tuple[str, ...]], list[Scenario]] = {}
    for scenario in scenarios:
        if scenario.role != HOSTS:
            groups.setdefault((scenario.role == MACHINE, scenario.game, scenario.settings), []).append(scenario)
    return [groups[key] for key in sorted(groups)], [scenario for scenario in scenarios if scenario.role == HOSTS]


def odd_game(folder: Path, name: str) -> str:
    """A class of `deadly_games` as a game in a file of the system's own folder."""
    path = folder / "games" / "odd.py"
    path.parent.mkdir()
    shutil.copyfile(deadly_games.__file__, path)
    return f"{path}:{name}"


def _rehearse(scenarios: Sequence[Scenario], plan: Intent, tell: Tell) -> Rehearsal:
    """These drills on one system."""
    folder, rng = Path(tempfile.mkdtemp(prefix="azq-drill-")), random.Random(plan.seed)
    game = odd_game(folder, scenarios[0].game) if scenarios[0].game else plan.game
    system = System(folder, game, [*scenarios[0].settings, *plan.overrides], listens=scenarios[0].role == MACHINE)
    rounds, throughput = Rounds(system, scenarios, plan.patience, rng, tell), None
    try:
        system.start()
        if plan.chaos is None:
            # In turn, so that no process dies so often in a row that its restarts are put off.
            rounds.make(scenario for _ in range(plan.rounds) for scenario in scenarios)
        else:
            first, second = undisturbed(system, plan.chaos), measure(system)
            rounds.make(scenarios_at_random(system, scenarios, plan.chaos, rng), compares=False)
            throughput = Throughput.of(first, second, measure(system))
        rehearsal = Rehearsal(rounds.end(), throughput)
    finally:
        system.stop()
    system.put_away(rehearsal.passed(), tell)
    return rehearsal


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
