"""Drills: hurt a running system again and again, time its recovery, and ask the ledger and the disk for what is missing."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azq.console.drill.cut import rehearse_cut
from azq.console.drill.faults import harm
from azq.console.drill.hosts import why_not
from azq.console.drill.scenarios import HOSTS, Scenario
from azq.console.drill.system import System, lost
from azq.errors import EvaluationTimeout

GIVE_UP_S = 90.0


@dataclass(slots=True)
class Outcome:
    """What the rounds of one drill showed; seconds are from the fault until games were learned from again."""

    scenario: Scenario
    recovery_s: list[float] = field(default_factory=list)
    games_lost: int = 0
    duplicates_inserted: int = 0
    evaluations_resent: int = 0
    balanced: bool = True
    failed: str = ""

    def passed(self) -> bool:
        """Nothing lost, nothing twice, and back in time (median)."""
        sound = not self.failed and self.balanced and not self.games_lost and not self.duplicates_inserted
        return sound and bool(self.recovery_s) and statistics.median(self.recovery_s) <= self.scenario.within_s

    def values(self) -> dict[str, Any]:
        """The public figures."""
        times = self.recovery_s
        return {
            "name": self.scenario.name,
            "rounds": len(times),
            "recovery_s": round(statistics.median(times), 3) if times else None,
            "recovery_max_s": round(max(times), 3) if times else None,
            "within_s": self.scenario.within_s,
            "games_lost": self.games_lost,
            "duplicates_inserted": self.duplicates_inserted,
            "evaluations_resent": self.evaluations_resent,
            "balanced": self.balanced,
            "passed": self.passed(),
            "failed": self.failed,
        }


Tell = Callable[[str], None]


def rehearse(
    scenarios: Sequence[Scenario], *, rounds: int, game: str, overrides: list[str], seed: int, tell: Tell, chaos_s: float = 0.0
) -> list[Outcome]:
    """Every drill `rounds` times on one system, or with `chaos_s` any of them at random for so long. Files stay where a drill failed.

    Drills of hosts have a fleet of their own, take no part in chaos, and are left out where no hosts can be made unless nothing else
    was asked for (`MissingExtra`).
    """
    here = [scenario for scenario in scenarios if scenario.role != HOSTS]
    outcomes = _rehearse_here(here, rounds, game, overrides, seed, tell, chaos_s) if here else []
    for scenario in scenarios if not chaos_s else ():
        if scenario.role == HOSTS and here and (reason := why_not()):
            tell(f"{scenario.name}: left out: {reason}")
        elif scenario.role == HOSTS:
            outcomes.append(Outcome(scenario))
            rehearse_cut(outcomes[-1], rounds, random.Random(seed), tell)
    return outcomes


def _rehearse_here(
    scenarios: Sequence[Scenario], rounds: int, game: str, overrides: list[str], seed: int, tell: Tell, chaos_s: float
) -> list[Outcome]:
    folder = Path(tempfile.mkdtemp(prefix="azq-drill-"))
    outcomes = {scenario.name: Outcome(scenario) for scenario in scenarios}
    system, rng = System(folder, game, overrides), random.Random(seed)
    try:
        system.start()
        for scenario in _order(scenarios, rounds, rng, chaos_s):
            outcome = outcomes[scenario.name]
            if not outcome.failed:
                _round(system, outcome, rng, tell)
    finally:
        system.stop()
    done = [outcome for outcome in outcomes.values() if outcome.recovery_s or outcome.failed]
    twice = system.stored_twice()
    for outcome in done:
        outcome.duplicates_inserted = twice  # a log is one: what it holds twice is everybody's
    if all(outcome.passed() for outcome in done):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        tell(f"files of the system are in {folder}")
    return done


def _order(scenarios: Sequence[Scenario], rounds: int, rng: random.Random, chaos_s: float) -> Iterator[Scenario]:
    if not chaos_s:
        # In turn, so that no process dies so often in a row that its restarts are put off.
        yield from (scenario for _ in range(rounds) for scenario in scenarios)
        return
    end = time.monotonic() + chaos_s
    while time.monotonic() < end:
        yield rng.choice(list(scenarios))


def _round(system: System, outcome: Outcome, rng: random.Random, tell: Tell) -> None:
    """One fault."""
    scenario, resent = outcome.scenario, system.resent()
    try:
        healed = harm(system, scenario, rng)
        began = time.monotonic()
        system.until(lambda: healed() or None, f"{scenario.role} after {scenario.name}", GIVE_UP_S)
        base = system.until(system.counts, "the ledger", GIVE_UP_S)
        system.until(lambda: (now := system.counts()) is not None and now.inserted > base.inserted, "further games", GIVE_UP_S)
        outcome.recovery_s.append(time.monotonic() - began)
        counts = system.until(system.counts, "the ledger", GIVE_UP_S)
    except EvaluationTimeout as error:
        outcome.failed = str(error)
        tell(f"{scenario.name}: FAILED: {error}")
        return
    outcome.balanced &= counts.balanced
    outcome.games_lost += lost(counts)
    outcome.evaluations_resent += system.resent() - resent
    tell(f"{scenario.name}: back after {outcome.recovery_s[-1]:.2f} s, {counts.inserted} games learned from, balanced {counts.balanced}")


def as_table(outcomes: Sequence[Outcome]) -> str:
    """A line a drill."""
    lines = [f"{'drill':<22}{'rounds':>7}{'median s':>10}{'max s':>8}{'goal s':>8}{'lost':>6}{'twice':>7}{'resent':>8}  {'ledger':<9}"]
    for values in (outcome.values() for outcome in outcomes):
        seconds = f"{values['recovery_s']:.2f}" if values["recovery_s"] is not None else "-"
        longest = f"{values['recovery_max_s']:.2f}" if values["recovery_max_s"] is not None else "-"
        verdict = "balanced" if values["balanced"] else "UNBALANCED"
        end = "" if values["passed"] else f"  NOT PASSED {values['failed']}"
        lines.append(
            f"{values['name']:<22}{values['rounds']:>7}{seconds:>10}{longest:>8}{values['within_s']:>8g}{values['games_lost']:>6}"
            f"{values['duplicates_inserted']:>7}{values['evaluations_resent']:>8}  {verdict:<9}{end}"
        )
    return "\n".join(lines)
