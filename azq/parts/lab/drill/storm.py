"""Chaos by mean time between failures: faults strike whether or not the one before has healed; ledger and disk are compared in between."""

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
class Strike:
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
class StrikeKind:
    """The roles that it can hit, a function that makes it and returns what ends it, and how long it lasts."""

    roles: tuple[str, ...]
    make: Callable[[System, Strike, Victim | None], Lift]
    lasts_s: tuple[float, float] = (0.0, 0.0)


def _signal(sig: signal.Signals, system: System, strike: Strike, victim: Victim | None) -> Lift:
    return system.kin.signalled(sig, victim) if victim else nothing


def _cut(system: System, strike: Strike, victim: Victim | None) -> Lift:
    """Drops all connections; new ones get no answer for so long, as with a cable that is pulled."""
    with (
        system.client(strike.plane) as client,
        client.pipeline(transaction=False) as pipe,
    ):  # at once: no client connects between
        for kind in ("normal", "pubsub"):
            pipe.client_kill_filter(_type=kind, skipme=True)
        pipe.client_pause(int(1000 * strike.lasts_s), all=True)
        pipe.execute()
    return nothing


def _disk_full(system: System, strike: Strike, victim: Victim | None) -> Lift:
    return limit_files(system, victim) if victim else nothing


def _poison(system: System, strike: Strike, victim: Victim | None) -> Lift:
    send_poison(system, random.Random(strike.at_s))
    return nothing


def _bad_weights(system: System, strike: Strike, victim: Victim | None) -> Lift:
    offer_weights(system, strike.kind)
    return nothing


KINDS: dict[str, StrikeKind] = {
    "kill": StrikeKind(SIGNALLED, partial(_signal, signal.SIGKILL)),
    "segv": StrikeKind(SIGNALLED, partial(_signal, signal.SIGSEGV)),
    "stop": StrikeKind(SIGNALLED, partial(_signal, signal.SIGSTOP), (20.0, 20.0)),  # longer than any timeout
    "freeze": StrikeKind(SIGNALLED, partial(_signal, signal.SIGSTOP), (0.1, 8.0)),  # shorter, or just long enough for a lease to run out
    "cut": StrikeKind(BROKERS, _cut, (0.2, 5.0)),
    "memory": StrikeKind(BROKERS, lambda system, strike, _: limit_memory(system, strike.plane), (0.5, 5.0)),
    "disk-full": StrikeKind(("learner",), _disk_full, (0.5, 5.0)),
    "poison": StrikeKind(("streams",), _poison),
    "nan": StrikeKind(("weights",), _bad_weights),
    "truncated": StrikeKind(("weights",), _bad_weights),
    "wrong-hash": StrikeKind(("weights",), _bad_weights),
}


def strikes(seed: int, mtbf_s: float, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Strike]:
    """Without end: exponential gaps of mean `mtbf_s`, each pair of kind and role as likely as any other. A pure function of the seed."""
    rng = random.Random(seed)
    pairs = [(kind, role) for kind in kinds for role in KINDS[kind].roles]
    at_s = 0.0
    while True:
        at_s += rng.expovariate(1.0 / mtbf_s)
        kind, role = rng.choice(pairs)
        yield Strike(at_s, kind, role, rng.uniform(*KINDS[kind].lasts_s))


def target(strike: Strike, alive: Sequence[str]) -> str | None:
    """The role that is struck: the one that is named, or the next one of its kind that is there."""
    roles = KINDS[strike.kind].roles
    first = roles.index(strike.role)
    return next((role for role in (*roles[first:], *roles[:first]) if role in alive or role not in SIGNALLED), None)


@dataclass(frozen=True, slots=True)
class Storm:
    """How often, and how long: `faults` or `lasts_s`, whichever ends first; 0: no such end. The same seed: the same faults."""

    mtbf_s: float
    faults: int = 0
    lasts_s: float = 0.0
    seed: int = 0

    def strikes(self) -> Iterable[Strike]:
        """All faults of it, in their order."""
        endless = strikes(self.seed, self.mtbf_s)
        timed = takewhile(lambda strike: strike.at_s <= self.lasts_s, endless) if self.lasts_s else endless
        return islice(timed, self.faults) if self.faults else timed


def weather(storm: Storm, plan: Intent, progress: Progress) -> Rehearsal:
    """One storm over one system, whose files stay where it did not pass."""
    system = System(Path(tempfile.mkdtemp(prefix="azq-chaos-")), plan.game, plan.overrides)
    chaos = Weather(system, storm, plan.patience, progress)
    try:
        system.start()
        chaos.pass_over()
    except (AzqError, OSError, redis.RedisError) as error:
        chaos.outcome.failed = str(error)
    finally:
        system.stop()
    system.put_away(chaos.outcome.passed(), progress)
    return Rehearsal([chaos.outcome], chaos.values(), chaos.as_line())


class Weather:
    """A storm over a system: makes its faults in time, lifts those that last, and collects the outcome."""

    def __init__(self, system: System, storm: Storm, patience: float, progress: Progress) -> None:
        self.outcome = Outcome(SCENARIO, system.journal_s(), patience)
        self._system = system
        self._storm = storm
        self._progress = progress
        self._auditor = DiskAuditor(system)
        self._lasting: list[tuple[float, Lift]] = []
        self._late_s = 0.0  # spent on comparisons, in which no fault is due
        self._made: Counter[str] = Counter()
        self._games = 0  # learned from by the end

    def values(self) -> dict[str, Any]:
        kinds = dict(sorted(self._made.items()))
        facts = {"mtbf_s": self._storm.mtbf_s, "seed": self._storm.seed}
        return {**facts, "faults": self._made.total(), "by_kind": kinds, "games": self._games}

    def as_line(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self._made.items()))
        return f"{self._made.total()} faults, one each {self._storm.mtbf_s:g} s ({kinds}); {self._games} games on disk"

    def pass_over(self) -> None:
        """All faults, then the last comparison, which reads all of the log again."""
        system, began_s, watch = self._system, time.monotonic(), RecoveryWatch(self._system)
        try:
            with system.watched(watch.sample), system.watched(self._lift_over):
                for number, strike in enumerate(self._storm.strikes(), 1):
                    system.rest(began_s + self._late_s + strike.at_s, "the next fault")
                    self._make(strike)
                    if number % COMPARE_EVERY == 0:
                        self._compare(number)
                self._heal()
        finally:
            self._nothing_lasts()  # also where it failed: a system without memory cannot drain
        self.outcome.pause_s.append(watch.pause_s)
        self.outcome.add(self._auditor.audit_at_the_end())
        self._games = system.log_reader.read().games

    def _compare(self, number: int) -> None:
        began_s = time.monotonic()
        self._heal()
        outcome = self.outcome
        outcome.add(self._auditor.audit())
        self._late_s += time.monotonic() - began_s
        self._progress(
            f"{number} faults: {self._system.log_reader.read().games} games on disk, {outcome.games_lost} lost, "
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
        self._system.until(healed, "games and a ledger that balances after the storm", patient_s)
        self.outcome.recovery_s.append(time.monotonic() - began_s)

    def _nothing_lasts(self) -> bool:
        self._lift_over(all_of_them=True)
        return not self._lasting

    def _lift_over(self, *, all_of_them: bool = False) -> None:
        """Lifts what has lasted its time; a broker that is away is asked again."""
        now = time.monotonic()
        self._lasting = [(end_s, lift) for end_s, lift in self._lasting if not (all_of_them or end_s <= now) or not _lifted(lift)]

    def _make(self, strike: Strike) -> None:
        """Makes one fault; it waits for a process of the role, or for a broker that is away."""
        lift = self._system.until(lambda: self._try(strike), f"a process for {strike.kind}", FOUND_S)
        self._made[strike.kind] += 1
        self._lasting.append((time.monotonic() + strike.lasts_s, lift))

    def _try(self, strike: Strike) -> Lift | None:
        there = self._system.kin.processes()
        if (role := target(strike, list(there))) is None:
            return None
        with contextlib.suppress(OSError), borne():
            return KINDS[strike.kind].make(self._system, replace(strike, role=role), there.get(role))
        return None


def _lifted(lift: Lift) -> bool:
    with contextlib.suppress(OSError), borne():
        lift()
        return True
    return False
