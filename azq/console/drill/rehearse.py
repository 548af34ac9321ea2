"""Drills: hurt a running system again and again, time its recovery, and ask the ledger and the disk for what is missing."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from azq.config import load
from azq.console.drill.chaos import Chaos, Throughput, faults, measure, undisturbed
from azq.console.drill.cut import rehearse_cut
from azq.console.drill.faults import harm
from azq.console.drill.harm import Harm
from azq.console.drill.hosts import why_not
from azq.console.drill.outcome import Outcome
from azq.console.drill.scenarios import HOSTS, SECOND_BROKER, Scenario
from azq.console.drill.system import System, lost
from azq.console.drill.vigil import Vigil
from azq.errors import AzqError, ConfigError
from azq.ledger.types import LedgerCounts

GIVE_UP_S = 90.0
# Several clients at a time and new ones every few seconds, so that both planes are used.
TWO_PLANES = ("broker.data_shards=2", "worker.concurrency=2", "selfplay.slice_s=5.0")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the drills showed; throughput where there was chaos."""

    outcomes: list[Outcome]
    throughput: Throughput | None = None

    def passed(self) -> bool:
        """Whether every drill passed."""
        return all(outcome.passed() for outcome in self.outcomes)


def rehearse(
    scenarios: Sequence[Scenario], *, rounds: int, game: str, overrides: list[str], seed: int, tell: Tell, chaos: Chaos | None = None
) -> Rehearsal:
    """Every drill `rounds` times on one system, or any of them at random for a while. Files stay where a drill failed.

    Drills of a second data plane have a system of their own with two, and take no part in chaos, unless that has several anyway.
    Drills of hosts have a fleet of their own, take no part in chaos, and are left out where no hosts can be made unless nothing else
    was asked for (`MissingExtra`).
    """
    here, second, hosts = by_system(scenarios, load(None, overrides).broker.data_shards)
    if chaos is not None and not here and hosts and not second:
        raise ConfigError("drills of hosts take no part in chaos; leave --minutes out, or name others")
    rehearsal = _rehearse_here(here, rounds, game, overrides, random.Random(seed), tell, chaos) if here else Rehearsal([])
    if second and (chaos is None or not here):
        also = _rehearse_here(second, rounds, game, [*TWO_PLANES, *overrides], random.Random(seed), tell, chaos)
        rehearsal = Rehearsal([*rehearsal.outcomes, *also.outcomes], also.throughput)
    for scenario in hosts if chaos is None else ():
        if (here or second) and (reason := why_not()):
            tell(f"{scenario.name}: left out: {reason}")
        else:
            rehearsal.outcomes.append(Outcome(scenario))
            rehearse_cut(rehearsal.outcomes[-1], rounds, random.Random(seed), tell)
    return rehearsal


def by_system(scenarios: Sequence[Scenario], data_planes: int) -> tuple[list[Scenario], list[Scenario], list[Scenario]]:
    """The drills of the system that is asked for, of one with a second data plane where that one has none, and of hosts."""
    hosts = [scenario for scenario in scenarios if scenario.role == HOSTS]
    second = [scenario for scenario in scenarios if scenario.role == SECOND_BROKER and data_planes == 1]
    return [scenario for scenario in scenarios if scenario not in (*hosts, *second)], second, hosts


def _rehearse_here(
    scenarios: Sequence[Scenario],
    rounds: int,
    game: str,
    overrides: list[str],
    rng: random.Random,
    tell: Tell,
    chaos: Chaos | None,
) -> Rehearsal:
    folder = Path(tempfile.mkdtemp(prefix="azq-drill-"))
    system = System(folder, game, overrides)
    outcomes = {scenario.name: Outcome(scenario, system.journal_s()) for scenario in scenarios}
    throughput = None
    try:
        system.start()
        if chaos is None:
            # In turn, so that no process dies so often in a row that its restarts are put off.
            _rounds(system, (scenario for _ in range(rounds) for scenario in scenarios), outcomes, rng, tell)
        else:
            first, second = undisturbed(system, chaos), measure(system)
            _rounds(system, faults(system, scenarios, chaos, rng), outcomes, rng, tell)
            throughput = Throughput.of(first, second, measure(system))
    finally:
        system.stop()
    done = [outcome for outcome in outcomes.values() if outcome.recovery_s or outcome.failed]
    _look_at_the_end(system, done)
    rehearsal = Rehearsal(done, throughput)
    if rehearsal.passed():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        tell(f"files of the system are in {folder}")
    return rehearsal


def _rounds(system: System, scenarios: Iterable[Scenario], outcomes: dict[str, Outcome], rng: random.Random, tell: Tell) -> None:
    for scenario in scenarios:
        outcome = outcomes[scenario.name]
        if outcome.failed:
            continue
        try:
            _round(system, outcome, rng, tell)
        except (AzqError, OSError, redis.RedisError) as error:  # a process or broker that was away when it should not be
            outcome.failed = str(error)
            tell(f"{scenario.name}: FAILED: {error}")


def _round(system: System, outcome: Outcome, rng: random.Random, tell: Tell) -> None:
    """One fault; raises what the system did not recover from."""
    resent, twice = system.resent(), system.evidence.read().twice
    done = harm(system, outcome.scenario, rng)
    try:
        counts = _watch(system, outcome, done)
    finally:
        done.end()
    outcome.balanced &= counts.balanced
    outcome.games_lost += lost(counts)
    outcome.duplicates_inserted += system.evidence.read().twice - twice
    outcome.evaluations_resent += system.resent() - resent
    if done.search_lost_s is not None:
        outcome.search_lost_s.append(done.search_lost_s)
    name, seconds = outcome.scenario.name, outcome.recovery_s[-1]
    tell(f"{name}: back after {seconds:.2f} s, {counts.inserted} games learned from, balanced {counts.balanced}")


def _watch(system: System, outcome: Outcome, done: Harm) -> LedgerCounts:
    """Waits until the system is whole again and notes when; returns the ledger's counts of then."""
    scenario, vigil = outcome.scenario, Vigil(system)
    with system.watched(vigil.look):
        if done.lasts_s:
            end_s = time.monotonic() + done.lasts_s
            system.until(lambda: time.monotonic() >= end_s, f"the end of {scenario.name}", done.lasts_s + GIVE_UP_S)
            done.end()
            vigil.begin()
        system.until(done.healed, f"{scenario.role} after {scenario.name}", GIVE_UP_S)
        healed_s = vigil.passed_s()
        base = system.until(system.counts, "the ledger", GIVE_UP_S)
        system.until(lambda: _goes_on(system.counts(), base), "further games", GIVE_UP_S)
        outcome.recovery_s.append(vigil.passed_s())
    outcome.pause_s.append(vigil.pause_s)
    serving_s = vigil.serving_s()
    if scenario.role in serving_s:
        serving_s[scenario.role] = max(healed_s, serving_s[scenario.role])
    for role, seconds in serving_s.items():
        outcome.serving_s.setdefault(role, []).append(seconds)
    return system.until(system.counts, "the ledger", GIVE_UP_S)


def _goes_on(now: LedgerCounts | None, base: LedgerCounts) -> bool:
    """Whether games are finished and games are learned from."""
    return now is not None and now.finished > base.finished and now.inserted > base.inserted


def _look_at_the_end(system: System, done: Sequence[Outcome]) -> None:
    """What the whole log holds twice and no round saw is everybody's."""
    unseen = system.evidence.read().twice - sum(outcome.duplicates_inserted for outcome in done)
    for outcome in done:
        outcome.duplicates_inserted += max(0, unseen)
