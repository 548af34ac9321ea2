"""Drills: hurt running systems again and again, time their recovery, and compare the ledger with the disk."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from azq.drill import deadly_games
from azq.drill.chaos import Chaos, Throughput, measure, scenarios_at_random, undisturbed
from azq.drill.fleet import rehearse_cut
from azq.drill.hosts import why_not
from azq.drill.outcome import Outcome
from azq.drill.rounds import Rounds, Tell
from azq.drill.scenarios import HOSTS, MACHINE, Scenario
from azq.drill.system import System
from azq.errors import ConfigError

GAME = "tic_tac_toe"


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
    if rehearsal.passed():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        tell(f"files of the system are in {folder}")
    return rehearsal
