"""Drills: hurt running systems again and again, time their recovery, and compare the ledger with the disk."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import redis

from azq.errors import AzqError, StateConflict
from azq.ledger import Ledger
from azq.ledger.types import JobState, LedgerCounts, RunState
from azq.parts.lab.drill.faults import INJECTORS
from azq.parts.lab.drill.outcome import Discrepancy, LedgerAccount, Outcome, Rehearsal, compare
from azq.parts.lab.drill.scenarios import PROCESSES, InjectedFault, Scenario
from azq.parts.lab.drill.system import RUN, System, read_account

STILL_S = 90.0  # the lease of a process that died has to end first, and a learner that starts has to take in what waits
PAUSED, RESUMED = "a drill compares ledger and disk", "ledger and disk were compared"
GAME = "tic_tac_toe"
GIVE_UP_S = 90.0
LOOK_S = 0.1

Progress = Callable[[str], None]  # is called with a line for the user


class DiskAuditor:
    """Finds discrepancies that its last audit did not."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._before = Discrepancy()

    def audit(self) -> Discrepancy:
        """Compares once; the run goes on when this returns."""
        current = self._compare()
        new, self._before = current.since(self._before), current
        resume(self._system)
        return new

    def audit_at_the_end(self) -> Discrepancy:
        """Compares once more, reading all of the log again; the run stays paused."""
        self._system.log_reader.restart()
        return self._compare().since(self._before)

    def _compare(self) -> Discrepancy:
        """Raises `StateConflict` where games were played with weights that had to be refused."""
        account, reader = settled_account(self._system), self._system.log_reader
        reader.read()
        if played := self._system.refused & reader.versions():
            raise StateConflict(f"games were played with weights that had to be refused: version {min(played)}")
        return compare(account, reader.disk())


def settled_account(system: System) -> LedgerAccount:
    """Pauses the run, waits until no game is leased and no sample waits, and reads the ledger."""
    _set_state(system, RunState.PAUSED, PAUSED, "a pause of the run")
    return system.until(lambda: system.query(_account), "the end of all leases and an empty sample stream", STILL_S)


def resume(system: System) -> None:
    """Resumes a paused run and waits for further games."""
    before = system.until(system.counts, "the ledger", STILL_S)
    _set_state(system, RunState.RUNNING, RESUMED, "the end of the pause")
    system.until(lambda: system.counted(lambda now: now.inserted > before.inserted), "games after the pause", STILL_S)


def _set_state(system: System, state: RunState, reason: str, what: str) -> None:
    system.until(lambda: system.query(lambda client: Ledger(client).set_run_state(RUN, state, reason)), what, STILL_S)


def _account(client: redis.Redis) -> LedgerAccount | None:
    """The ledger's account; None while a game is in transit, or where one was while it was read."""
    ledger = Ledger(client)
    snapshot = ledger.snapshot(RUN)
    if snapshot.counts.in_transit or any(view.state is JobState.LEASED for view in snapshot.jobs):
        return None
    account = read_account(client, RUN)
    return account if ledger.counts(RUN) == snapshot.counts else None


@dataclass(frozen=True, slots=True)
class Intent:
    """How drills are rehearsed; `patience` multiplies the bounds on time, for machines with other work."""

    rounds: int = 1
    game: str = GAME
    overrides: tuple[str, ...] = ()
    seed: int = 0
    patience: float = 1.0


class RecoveryWatch:
    """When each role served again, and the longest time without a game learned from; in seconds since it began."""

    def __init__(self, system: System, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._system = system
        self._clock = clock
        self._looked_s = 0.0
        self.serving_s: dict[str, float] = {}  # roles that were not serving at some time, and when they were again
        self._inserted = -1
        self.begin()

    def begin(self) -> None:
        self._began_s = self._grown_s = self._clock()
        self.serving_s.clear()
        self.pause_s = 0.0

    def passed_s(self) -> float:
        return self._clock() - self._began_s

    def sample(self) -> None:
        """Samples the system, at most once in `LOOK_S`."""
        now = self._clock()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        serving = self._system.serving()
        self.serving_s |= {role: self.passed_s() for role in (*PROCESSES, *self._system.brokers()) if serving.get(role) is None}
        counts = self._system.counts()
        if counts is not None and counts.inserted > self._inserted:
            self._inserted, self._grown_s = counts.inserted, now
        self.pause_s = max(self.pause_s, now - self._grown_s)


class Rounds:
    """Hurts a running system again and again, and collects the outcomes."""

    def __init__(self, system: System, scenarios: Sequence[Scenario], patience: float, rng: random.Random, progress: Progress) -> None:
        self._system = system
        self._rng = rng
        self._progress = progress
        self._auditor = DiskAuditor(system)
        self._outcomes = {scenario.name: Outcome(scenario, system.journal_s(), patience) for scenario in scenarios}

    def make(self, scenarios: Iterable[Scenario]) -> None:
        """A round of each; one that fails is not tried again."""
        for scenario in scenarios:
            outcome = self._outcomes[scenario.name]
            if outcome.failed:
                continue
            try:
                self._round(outcome)
            except (AzqError, OSError, redis.RedisError) as error:  # a process or broker that was away when it should not be
                outcome.failed = str(error)
                self._progress(f"{scenario.name}: FAILED: {error}")

    def end(self) -> list[Outcome]:
        """The outcomes after a last comparison of the whole log; what only that finds counts against every drill."""
        done = [outcome for outcome in self._outcomes.values() if outcome.recovery_s or outcome.failed]
        try:
            discrepancy = self._auditor.audit_at_the_end()
            for outcome in done:
                outcome.add(discrepancy)
        except (AzqError, OSError, redis.RedisError) as error:
            for outcome in done:
                outcome.failed = outcome.failed or f"ledger and disk cannot be compared: {error}"
        return done

    def _round(self, outcome: Outcome) -> None:
        """One fault; raises what the system did not recover from."""
        system, name = self._system, outcome.scenario.name
        resent = system.resent()
        injected = INJECTORS[outcome.scenario.fault](system, outcome.scenario, self._rng)
        try:
            counts = self._watch(outcome, injected)
        finally:
            injected.end()
        outcome.balanced &= counts.balanced
        outcome.evaluations_resent += system.resent() - resent
        if injected.search_lost_s is not None:
            outcome.search_lost_s.append(injected.search_lost_s)
        outcome.add(self._auditor.audit())
        self._progress(
            f"{name}: back after {outcome.recovery_s[-1]:.2f} s, {counts.inserted} games learned from, balanced {counts.balanced}"
        )

    def _watch(self, outcome: Outcome, injected: InjectedFault) -> LedgerCounts:
        """Waits until the system has recovered and records when; returns the ledger's counts of then."""
        system, scenario, watch = self._system, outcome.scenario, RecoveryWatch(self._system)
        with system.watched(watch.sample):
            if injected.lasts_s:
                system.rest(time.monotonic() + injected.lasts_s, f"the end of {scenario.name}")
                injected.end()
                watch.begin()
            give_up_s = max(GIVE_UP_S, 2 * outcome.patience * scenario.within_s)
            system.until(injected.healed, f"{scenario.role} after {scenario.name}", give_up_s)
            healed_s = watch.passed_s()
            injected.end()
            base = system.until(system.counts, "the ledger", GIVE_UP_S)
            further = partial(system.counted, lambda now: now.finished > base.finished and now.inserted > base.inserted)
            system.until(further, "further games", GIVE_UP_S)
            outcome.recovery_s.append(watch.passed_s())
        outcome.pause_s.append(watch.pause_s)
        outcome.add_serving(watch.serving_s, healed_s)
        return system.until(system.counts, "the ledger", GIVE_UP_S)


def rehearse(scenarios: Sequence[Scenario], plan: Intent, progress: Progress) -> Rehearsal:
    """Makes every drill `plan.rounds` times, and compares ledger and disk after each round and at the end.

    Drills with further settings have a separate system. Files of a system whose drill failed stay.
    """
    return Rehearsal([outcome for group in by_system(scenarios) for outcome in _rehearse(group, plan, progress)])


def by_system(scenarios: Sequence[Scenario]) -> list[list[Scenario]]:
    """Drills that share a system; those without further settings come first."""
    groups: dict[tuple[str, ...], list[Scenario]] = {}
    for scenario in scenarios:
        groups.setdefault(scenario.settings, []).append(scenario)
    return [groups[key] for key in sorted(groups)]


def _rehearse(scenarios: Sequence[Scenario], plan: Intent, progress: Progress) -> list[Outcome]:
    system = System(Path(tempfile.mkdtemp(prefix="azq-drill-")), plan.game, [*scenarios[0].settings, *plan.overrides])
    try:
        system.start()
        rounds = Rounds(system, scenarios, plan.patience, random.Random(plan.seed), progress)
        # In turn, so that no process dies so often in a row that its restarts are put off.
        rounds.make(scenario for _ in range(plan.rounds) for scenario in scenarios)
        outcomes = rounds.end()
    finally:
        system.stop()
    system.put_away(Rehearsal(outcomes).passed(), progress)
    return outcomes
