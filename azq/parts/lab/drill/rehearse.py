"""Drills: hurt running systems again and again, time their recovery, and compare the ledger with the disk.

In chaos any fault at random for a while, and what that costs: work done meanwhile against work done undisturbed.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import redis

from azq.errors import AzqError, ConfigError, StateConflict
from azq.host.browser import no_browser
from azq.ledger import Ledger
from azq.ledger.types import JobState, LedgerCounts, RunState
from azq.parts.lab.drill import deadly_games
from azq.parts.lab.drill.faults import DEEDS
from azq.parts.lab.drill.fleet import rehearse_cut
from azq.parts.lab.drill.hosts import no_disk, small_disk, why_not
from azq.parts.lab.drill.outcome import Books, Discrepancy, Outcome, Rehearsal, Throughput, Work, compare
from azq.parts.lab.drill.scenarios import DISK, GATEWAY, HOSTS, MACHINE, PAGE, PROCESSES, TAB, Harm, Scenario
from azq.parts.lab.drill.system import READY_S, RUN, System, read_books

STILL_S = 90.0  # the lease of a process that died has to end first, and a learner that starts has to take in what waits
PAUSED, GOES_ON = "a drill compares ledger and disk", "ledger and disk were compared"


class DiskAuditor:
    """Tells what is newly wrong since it looked last."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._before = Discrepancy()

    def audit(self) -> Discrepancy:
        """One look; the run goes on when this returns."""
        found = self._compare()
        new, self._before = found.since(self._before), found
        go_on(self._system)
        return new

    def audit_at_the_end(self) -> Discrepancy:
        """The last look, which reads all of the log again; the run stays paused."""
        self._system.evidence.begin()
        return self._compare().since(self._before)

    def _compare(self) -> Discrepancy:
        """Raises `StateConflict` where games were played with weights that had to be refused."""
        books, evidence = still(self._system), self._system.evidence
        evidence.read()
        if played := self._system.refused & evidence.versions():
            raise StateConflict(f"games were played with weights that had to be refused: version {min(played)}")
        return compare(books, evidence.disk())


def still(system: System) -> Books:
    """Pauses the run, waits until nobody holds a game and no sample waits, and reads the ledger."""
    _set_state(system, RunState.PAUSED, PAUSED, "a pause of the run")
    return system.until(lambda: system.query(_books), "the end of all leases and an empty sample stream", STILL_S)


def go_on(system: System) -> None:
    """Lets a paused run go on and waits until it does."""
    before = system.until(system.counts, "the ledger", STILL_S)
    _set_state(system, RunState.RUNNING, GOES_ON, "the end of the pause")
    system.until(lambda: system.counted(lambda now: now.inserted > before.inserted), "games after the pause", STILL_S)


def _set_state(system: System, state: RunState, reason: str, what: str) -> None:
    system.until(lambda: system.query(lambda client: Ledger(client).set_run_state(RUN, state, reason)), what, STILL_S)


def _books(client: redis.Redis) -> Books | None:
    """The ledger's account; None while a game is on its way, or where one was while it was read."""
    ledger = Ledger(client)
    look = ledger.look_at(RUN)
    if look.counts.in_transit or any(view.state is JobState.LEASED for view in look.jobs):
        return None
    books = read_books(client, RUN)
    return books if ledger.counts(RUN) == look.counts else None


GAME = "tic_tac_toe"
UNDISTURBED_SHARE = 0.25  # of the time of the chaos, before it
WARM_UP_S = 15.0  # games that begin together end together; then they spread
GIVE_UP_S = 90.0
LOOK_S = 0.1
TABS = {GATEWAY: 2, TAB: 2, PAGE: 0}  # simulated ones, of systems that ask volunteers to play

Tell = Callable[[str], None]


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


class RecoveryWatch:
    """When each role was serving again, and how long no game was learned from; seconds since it began, as far as it was asked to look."""

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

    def look(self) -> None:
        """One look, not more often than makes sense."""
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
            goes_on = partial(system.counted, lambda now: now.finished > base.finished and now.inserted > base.inserted)
            system.until(goes_on, "further games", GIVE_UP_S)
            outcome.recovery_s.append(watch.passed_s())
        outcome.pause_s.append(watch.pause_s)
        _note_serving(outcome, watch.serving_s, healed_s)
        return system.until(system.counts, "the ledger", GIVE_UP_S)


def _note_serving(outcome: Outcome, serving_s: dict[str, float], healed_s: float) -> None:
    role = outcome.scenario.role
    if role == MACHINE:  # it serves no more; what counts is when it has let go of everything
        serving_s[role] = healed_s
    if role in serving_s:
        serving_s[role] = max(healed_s, serving_s[role])
    for name, seconds in serving_s.items():
        outcome.serving_s.setdefault(name, []).append(seconds)


def rehearse(scenarios: Sequence[Scenario], plan: Intent, tell: Tell) -> Rehearsal:
    """Every drill `plan.rounds` times, or any of them at random for a while. Files stay where a drill failed.

    Ledger and disk are compared after each round and at the end; in chaos at the end alone, for it takes seconds in which nothing is
    played. Drills with settings of their own have a system of their own, and take no part in chaos unless nothing else was asked for.
    Drills of hosts have a fleet of their own, take no part in chaos, and are left out where no hosts can be made unless nothing else
    was asked for (`MissingExtra`); so are those of pages where there is no browser, and of disks where nothing can be mounted.
    """
    systems, hosts = by_system(scenarios)
    if plan.chaos is not None and not systems and hosts:
        raise ConfigError("drills of hosts take no part in chaos; leave --minutes out, or name others")
    rehearsal = Rehearsal([])
    for group in systems if plan.chaos is None else systems[:1]:
        lacking = {PAGE: no_browser, DISK: no_disk}.get(group[0].role, str)
        if len(scenarios) > len(group) and (reason := lacking()):
            tell(f"{group[0].name}: left out: {reason}")
            continue
        also = _rehearse(group, plan, tell)
        rehearsal = replace(also, outcomes=[*rehearsal.outcomes, *also.outcomes])
    for scenario in hosts if plan.chaos is None else ():
        if systems and (reason := why_not()):
            tell(f"{scenario.name}: left out: {reason}")
        else:
            rehearsal.outcomes.append(Outcome(scenario, patience=plan.patience))
            rehearse_cut(rehearsal.outcomes[-1], plan.rounds, random.Random(plan.seed), tell)
    return rehearsal


def by_system(scenarios: Sequence[Scenario]) -> tuple[list[list[Scenario]], list[Scenario]]:
    """Drills that share a system, those without settings of their own first, and those of hosts."""
    groups: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], list[Scenario]] = {}
    for scenario in scenarios:
        if scenario.role != HOSTS:
            key = (scenario.role if scenario.role in (DISK, MACHINE) else "", scenario.game, scenario.settings, scenario.environ)
            groups.setdefault(key, []).append(scenario)
    return [groups[key] for key in sorted(groups)], [scenario for scenario in scenarios if scenario.role == HOSTS]


def odd_game(folder: Path, name: str) -> str:
    """A class of `deadly_games` as a game in a file of the system's own folder."""
    path = folder / "games" / "odd.py"
    path.parent.mkdir()
    shutil.copyfile(deadly_games.__file__, path)
    return f"{path}:{name}"


def _rehearse(scenarios: Sequence[Scenario], plan: Intent, tell: Tell) -> Rehearsal:
    folder, rng = Path(tempfile.mkdtemp(prefix="azq-drill-")), random.Random(plan.seed)
    game = odd_game(folder, scenarios[0].game) if scenarios[0].game else plan.game
    system = System(
        folder,
        game,
        [*scenarios[0].settings, *plan.overrides],
        listens=scenarios[0].role == MACHINE,
        tabs=TABS.get(scenarios[0].role),
        environ=dict(said.split("=", 1) for said in scenarios[0].environ),
    )
    with small_disk(folder) if scenarios[0].role == DISK else contextlib.nullcontext():
        try:
            system.start()
            rehearsal = _made(system, Rounds(system, scenarios, plan.patience, rng, tell), scenarios, plan, rng)
        finally:
            system.stop()
    system.put_away(rehearsal.passed(), tell)
    return rehearsal


def _made(system: System, rounds: Rounds, scenarios: Sequence[Scenario], plan: Intent, rng: random.Random) -> Rehearsal:
    if plan.chaos is None:
        # In turn, so that no process dies so often in a row that its restarts are put off.
        rounds.make(scenario for _ in range(plan.rounds) for scenario in scenarios)
        return Rehearsal(rounds.end())
    first, second = undisturbed(system, plan.chaos), measure(system)
    rounds.make(scenarios_at_random(system, scenarios, plan.chaos, rng), compares=False)
    throughput = Throughput.of(first, second, measure(system))
    return Rehearsal(rounds.end(), throughput.values(), throughput.as_line())


def measure(system: System) -> Work:
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
