"""Chaos by mean time between failures: faults occur whether or not the one before has healed; ledger and disk are compared in between."""

from __future__ import annotations

import contextlib
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import redis

from azq.errors import AzqError
from azq.parts.lab.drill.faults.brokers import limit_files, limit_memory, offer_weights, send_poison
from azq.parts.lab.drill.outcome import Outcome, Rehearsal
from azq.parts.lab.drill.rehearse import DiskAuditor, Intent, Progress, RecoveryWatch
from azq.parts.lab.drill.scenarios import BROKERS, PROCESSES, Scenario, nothing
from azq.parts.lab.drill.system import System
from azq.process.kin import CHILD, Victim, borne

COMPARE_EVERY = 100  # faults
WITHIN_S = 90.0  # from the last fault until games are learned from: restarts are put off by up to 30 s for what dies again and again
SCENARIO = Scenario("chaos", "any fault at any time", "all", "chaos", WITHIN_S, 2 * WITHIN_S)
FOUND_S = 60.0
PLAYING = (*PROCESSES, CHILD)
SIGNALLED = (*PLAYING, *BROKERS)

Lift = Callable[[], None]


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """One fault: seconds since the first one was awaited, its kind, the role it hits, and how long it lasts."""

    at_s: float
    kind: str
    role: str
    lasts_s: float

    @property
    def plane(self) -> str:
        """The broker that it hits."""
        return self.role.removeprefix("broker-")


@dataclass(frozen=True, slots=True)
class FaultKind:
    """The roles that it can hit, a function that makes it and returns what ends it, and how long it lasts."""

    roles: tuple[str, ...]
    make: Callable[[System, ScheduledFault, Victim | None], Lift]
    lasts_s: tuple[float, float] = (0.0, 0.0)


def _signal(sig: signal.Signals, system: System, fault: ScheduledFault, victim: Victim | None) -> Lift:
    return system.kin.signalled(sig, victim) if victim else nothing


def _cut(system: System, fault: ScheduledFault, victim: Victim | None) -> Lift:
    """Drops all connections; new ones get no answer for so long, as with a cable that is pulled."""
    with system.client(fault.plane) as client, client.pipeline(transaction=False) as pipe:  # at once: no client connects between
        for kind in ("normal", "pubsub"):
            pipe.client_kill_filter(_type=kind, skipme=True)
        pipe.client_pause(int(1000 * fault.lasts_s), all=True)
        pipe.execute()
    return nothing


def _disk_full(system: System, fault: ScheduledFault, victim: Victim | None) -> Lift:
    return limit_files(system, victim) if victim else nothing


def _poison(system: System, fault: ScheduledFault, victim: Victim | None) -> Lift:
    send_poison(system, random.Random(fault.at_s))
    return nothing


def _bad_weights(system: System, fault: ScheduledFault, victim: Victim | None) -> Lift:
    offer_weights(system, fault.kind)
    return nothing


KINDS: dict[str, FaultKind] = {
    "kill": FaultKind(SIGNALLED, partial(_signal, signal.SIGKILL)),
    "segv": FaultKind(SIGNALLED, partial(_signal, signal.SIGSEGV)),
    "stop": FaultKind(SIGNALLED, partial(_signal, signal.SIGSTOP), (20.0, 20.0)),  # longer than any timeout
    "freeze": FaultKind(SIGNALLED, partial(_signal, signal.SIGSTOP), (0.1, 8.0)),  # shorter, or just long enough for a lease to run out
    "cut": FaultKind(BROKERS, _cut, (0.2, 5.0)),
    "memory": FaultKind(BROKERS, lambda system, fault, _: limit_memory(system, fault.plane), (0.5, 5.0)),
    "disk-full": FaultKind(("learner",), _disk_full, (0.5, 5.0)),
    "poison": FaultKind(("streams",), _poison),
    "nan": FaultKind(("weights",), _bad_weights),
    "truncated": FaultKind(("weights",), _bad_weights),
    "wrong-hash": FaultKind(("weights",), _bad_weights),
}


def schedule(seed: int, mtbf_s: float, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[ScheduledFault]:
    """Without end: exponential gaps of mean `mtbf_s`, each pair of kind and role as likely as any other. A pure function of the seed."""
    rng = random.Random(seed)
    pairs = [(kind, role) for kind in kinds for role in KINDS[kind].roles]
    at_s = 0.0
    while True:
        at_s += rng.expovariate(1.0 / mtbf_s)
        kind, role = rng.choice(pairs)
        yield ScheduledFault(at_s, kind, role, rng.uniform(*KINDS[kind].lasts_s))


def target(fault: ScheduledFault, alive: Sequence[str]) -> str | None:
    """The role that is hit: the one that is named, or the next one of its kind that is there."""
    roles = KINDS[fault.kind].roles
    first = roles.index(fault.role)
    return next((role for role in (*roles[first:], *roles[:first]) if role in alive or role not in SIGNALLED), None)


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """How often, and how long: `faults` or `lasts_s`, whichever ends first; 0: no such end. The same seed: the same faults."""

    mtbf_s: float
    faults: int = 0
    lasts_s: float = 0.0
    seed: int = 0

    def schedule(self) -> Iterable[ScheduledFault]:
        """All faults of it, in their order."""
        endless = schedule(self.seed, self.mtbf_s)
        timed = takewhile(lambda fault: fault.at_s <= self.lasts_s, endless) if self.lasts_s else endless
        return islice(timed, self.faults) if self.faults else timed


def run_chaos(chaos_plan: ChaosPlan, plan: Intent, progress: Progress) -> Rehearsal:
    """Chaos in one system, whose files stay where it did not pass."""
    system = System(Path(tempfile.mkdtemp(prefix="azq-chaos-")), plan.game, plan.overrides)
    chaos = ChaosRun(system, chaos_plan, plan.patience, progress)
    try:
        system.start()
        chaos.run()
    except (AzqError, OSError, redis.RedisError) as error:
        chaos.outcome.failed = str(error)
    finally:
        system.stop()
    system.put_away(chaos.outcome.passed(), progress)
    return Rehearsal([chaos.outcome], chaos.values(), chaos.as_line())


class ChaosRun:
    """Chaos in a system: makes its faults in time, lifts those that last, and collects the outcome."""

    def __init__(self, system: System, chaos_plan: ChaosPlan, patience: float, progress: Progress) -> None:
        self.outcome = Outcome(SCENARIO, system.journal_s(), patience)
        self._system = system
        self._plan = chaos_plan
        self._progress = progress
        self._auditor = DiskAuditor(system)
        self._lasting: list[tuple[float, Lift]] = []
        self._late_s = 0.0  # spent on comparisons, in which no fault is due
        self._made: Counter[str] = Counter()
        self._games = 0  # learned from by the end

    def values(self) -> dict[str, Any]:
        kinds = dict(sorted(self._made.items()))
        facts = {"mtbf_s": self._plan.mtbf_s, "seed": self._plan.seed}
        return {**facts, "faults": self._made.total(), "by_kind": kinds, "games": self._games}

    def as_line(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self._made.items()))
        return f"{self._made.total()} faults, one each {self._plan.mtbf_s:g} s ({kinds}); {self._games} games on disk"

    def run(self) -> None:
        """All faults, then the last comparison, which reads all of the log again."""
        system, began_s, watch = self._system, time.monotonic(), RecoveryWatch(self._system)
        try:
            with system.watched(watch.sample), system.watched(self._lift_over):
                for number, fault in enumerate(self._plan.schedule(), 1):
                    system.rest(began_s + self._late_s + fault.at_s, "the next fault")
                    self._make(fault)
                    if number % COMPARE_EVERY == 0:
                        self._compare(number)
                self._heal()
        finally:
            self._nothing_lasts()  # also where it failed: a system without memory cannot drain
        self.outcome.pause_s.append(watch.pause_s)
        self.outcome.add(self._auditor.audit_at_the_end())
        self._games = system.log_reader.read()

    def _compare(self, number: int) -> None:
        began_s = time.monotonic()
        self._heal()
        outcome = self.outcome
        outcome.add(self._auditor.audit())
        self._late_s += time.monotonic() - began_s
        self._progress(
            f"{number} faults: {self._system.log_reader.read()} games on disk, {outcome.games_lost} lost, "
            f"{outcome.duplicates_inserted} twice, back after {outcome.recovery_s[-1]:.1f} s"
        )

    def _heal(self) -> None:
        """Lifts what lasts and waits until games are learned from and the ledger balances."""
        began_s = time.monotonic()
        self._system.until(self._nothing_lasts, "the end of all faults", FOUND_S)
        before = self._system.until(self._system.counts, "the ledger", FOUND_S)
        patient_s = self.outcome.patience * SCENARIO.pause_within_s
        # Noise in the sample stream counts as in transit until the learner put it aside: the sums hold a moment later.
        healed = partial(self._system.counted, lambda now: now.balanced and now.inserted > before.inserted)
        self._system.until(healed, "games and a ledger that balances after the last fault", patient_s)
        self.outcome.recovery_s.append(time.monotonic() - began_s)

    def _nothing_lasts(self) -> bool:
        self._lift_over(all_of_them=True)
        return not self._lasting

    def _lift_over(self, *, all_of_them: bool = False) -> None:
        """Lifts what has lasted its time; a broker that is away is asked again."""
        now = time.monotonic()
        self._lasting = [(end_s, lift) for end_s, lift in self._lasting if not (all_of_them or end_s <= now) or not _lifted(lift)]

    def _make(self, fault: ScheduledFault) -> None:
        """Makes one fault; it waits for a process of the role, or for a broker that is away."""
        lift = self._system.until(lambda: self._try(fault), f"a process for {fault.kind}", FOUND_S)
        self._made[fault.kind] += 1
        self._lasting.append((time.monotonic() + fault.lasts_s, lift))

    def _try(self, fault: ScheduledFault) -> Lift | None:
        there = self._system.kin.processes()
        if (role := target(fault, list(there))) is None:
            return None
        with contextlib.suppress(OSError), borne():
            return KINDS[fault.kind].make(self._system, replace(fault, role=role), there.get(role))
        return None


def _lifted(lift: Lift) -> bool:
    with contextlib.suppress(OSError), borne():
        lift()
        return True
    return False
