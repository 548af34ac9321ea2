"""The rounds of drills on one system: a fault, the way back, and then the comparison of ledger and disk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence

import redis

from azq.drill.audit import DiskAuditor
from azq.drill.faults import DEEDS
from azq.drill.outcome import Outcome
from azq.drill.scenarios import PROCESSES, Harm, Scenario
from azq.drill.system import System
from azq.errors import AzqError
from azq.ledger.types import LedgerCounts

GIVE_UP_S = 90.0
LOOK_S = 0.1

Tell = Callable[[str], None]


class RecoveryWatch:
    """When each role was serving again, and how long no game was learned from; seconds since it began, as far as it was asked to look."""

    def __init__(self, system: System, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._system = system
        self._clock = clock
        self._looked_s = 0.0
        self._away: dict[str, float] = {}
        self._inserted = -1
        self.begin()

    def begin(self) -> None:
        """Counts from now."""
        self._began_s = self._grown_s = self._clock()
        self._away.clear()
        self.pause_s = 0.0

    def passed_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._began_s

    def look(self) -> None:
        """One look, not more often than makes sense."""
        now = self._clock()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        serving = self._system.serving()
        self._away |= {role: self.passed_s() for role in (*PROCESSES, *self._system.brokers()) if serving.get(role) is None}
        counts = self._system.counts()
        if counts is not None and counts.inserted > self._inserted:
            self._inserted, self._grown_s = counts.inserted, now
        self.pause_s = max(self.pause_s, now - self._grown_s)

    def serving_s(self) -> dict[str, float]:
        """Roles that were not serving at some time, and when they were again."""
        return dict(self._away)


class Rounds:
    """Hurts a running system again and again, and notes in outcomes what came of it."""

    def __init__(self, system: System, scenarios: Sequence[Scenario], patience: float, rng: random.Random, tell: Tell) -> None:
        self._system = system
        self._rng = rng
        self._tell = tell
        self._auditor = DiskAuditor(system)
        self._outcomes = {scenario.name: Outcome(scenario, system.journal_s(), patience) for scenario in scenarios}

    def make(self, scenarios: Iterable[Scenario], *, compares: bool = True) -> None:
        """A round of each; one that fails is not tried again."""
        for scenario in scenarios:
            outcome = self._outcomes[scenario.name]
            if outcome.failed:
                continue
            try:
                self._round(outcome, compares)
            except (AzqError, OSError, redis.RedisError) as error:  # a process or broker that was away when it should not be
                outcome.failed = str(error)
                self._tell(f"{scenario.name}: FAILED: {error}")

    def end(self) -> list[Outcome]:
        """The outcomes, once all of the log was compared again; what no round saw is everybody's."""
        done = [outcome for outcome in self._outcomes.values() if outcome.recovery_s or outcome.failed]
        try:
            found = self._auditor.audit_at_the_end()
            for outcome in done:
                outcome.note(found)
        except (AzqError, OSError, redis.RedisError) as error:
            for outcome in done:
                outcome.failed = outcome.failed or f"ledger and disk cannot be compared: {error}"
        return done

    def _round(self, outcome: Outcome, compares: bool) -> None:
        """One fault; raises what the system did not recover from."""
        system, name = self._system, outcome.scenario.name
        resent = system.resent()
        done = DEEDS[outcome.scenario.fault](system, outcome.scenario, self._rng)
        try:
            counts = self._watch(outcome, done)
        finally:
            done.end()
        outcome.balanced &= counts.balanced
        outcome.evaluations_resent += system.resent() - resent
        if done.search_lost_s is not None:
            outcome.search_lost_s.append(done.search_lost_s)
        if compares:
            outcome.note(self._auditor.audit())
        self._tell(f"{name}: back after {outcome.recovery_s[-1]:.2f} s, {counts.inserted} games learned from, balanced {counts.balanced}")

    def _watch(self, outcome: Outcome, done: Harm) -> LedgerCounts:
        """Waits until the system is whole again and notes when; returns the ledger's counts of then."""
        system, scenario, watch = self._system, outcome.scenario, RecoveryWatch(self._system)
        with system.watched(watch.look):
            if done.lasts_s:
                system.rest(time.monotonic() + done.lasts_s, f"the end of {scenario.name}")
                done.end()
                watch.begin()
            system.until(done.healed, f"{scenario.role} after {scenario.name}", max(GIVE_UP_S, 2 * outcome.patience * scenario.within_s))
            healed_s = watch.passed_s()
            done.end()
            base = system.until(system.counts, "the ledger", GIVE_UP_S)
            system.until(lambda: _goes_on(system.counts(), base), "further games", GIVE_UP_S)
            outcome.recovery_s.append(watch.passed_s())
        outcome.pause_s.append(watch.pause_s)
        _note_serving(outcome, watch.serving_s(), healed_s)
        return system.until(system.counts, "the ledger", GIVE_UP_S)


def _note_serving(outcome: Outcome, serving_s: dict[str, float], healed_s: float) -> None:
    role = outcome.scenario.role
    if role in serving_s:
        serving_s[role] = max(healed_s, serving_s[role])
    for name, seconds in serving_s.items():
        outcome.serving_s.setdefault(name, []).append(seconds)


def _goes_on(now: LedgerCounts | None, base: LedgerCounts) -> bool:
    """Whether games are finished and games are learned from."""
    return now is not None and now.finished > base.finished and now.inserted > base.inserted
