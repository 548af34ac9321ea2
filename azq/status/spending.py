"""What machines cost: the time of those whose heartbeats live, added up for the fleet and for each run, and where that leads a run.

A machine that serves several runs costs each of them an equal part. A run is charged by the time that it has been running, and no machine
for longer than its oldest process lives: so what a daemon that was away did not see is added when it is back, and a night in which all was
off is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as changed

from azq.bus.base import Bus
from azq.config import BudgetConfig
from azq.goals import Done, Goals
from azq.ledger.types import RunState
from azq.status.state import NOTHING_SPENT, Desired, Observed
from azq.wire import keys
from azq.wire.codec import decode, encode, skip_unreadable
from azq.wire.machines import MachineTime, Spending
from azq.wire.messages import Heartbeat

HOST = "host"  # role of who watches a machine, and does nothing for any run
SERVICE = "service"  # role of what is no machine, and costs all the same
HOUR_MS = 3_600_000.0
WRITE_EVERY_MS = 10_000
ALWAYS_MS = float("inf")


@dataclass(frozen=True, slots=True)
class Present:
    """A machine that is there."""

    kind: str = ""
    per_hour: float | None = None
    roles: tuple[str, ...] = ()
    up_ms: float = ALWAYS_MS  # of its oldest process
    runs: frozenset[str] = frozenset()  # that it works for; empty: for all that are running


def present_of(beats: Iterable[Heartbeat], services: Mapping[str, float] | None = None) -> dict[str, Present]:
    """The machines of these processes, and what else is paid for by the hour, by name."""
    values: dict[str, Present] = {name: Present(SERVICE, price, (SERVICE,)) for name, price in (services or {}).items()}
    by_host: dict[str, list[Heartbeat]] = {}
    for beat in beats:
        by_host.setdefault(beat.host, []).append(beat)
    for host, own in by_host.items():
        at_work = [beat for beat in own if beat.role != HOST]
        bound = frozenset(beat.run for beat in at_work if beat.run) if all(beat.run for beat in at_work) else frozenset()
        values[host] = Present(
            next((beat.machine_kind for beat in own if beat.machine_kind), ""),
            next((beat.per_hour for beat in own if beat.per_hour is not None), None),
            tuple(sorted({beat.role for beat in at_work or own})),
            max(max(0, beat.sent_ms - beat.started_ms) for beat in own),
            bound,
        )
    return values


def shares_of(present: Mapping[str, Present], running: Sequence[str]) -> dict[str, dict[str, float]]:
    """What part of each machine works for each running run: run -> host -> part. The parts of a machine add up to one, or to none."""
    shares: dict[str, dict[str, float]] = {run: {} for run in running}
    for host, here in present.items():
        served = [run for run in running if run in here.runs] if here.runs else running
        for run in served:
            shares[run][host] = 1 / len(served)
    return shares


def charged(before: Spending, present: Mapping[str, Present], clock_ms: int, shares: Mapping[str, float] | None = None) -> Spending:
    """The same at a later moment of its clock; `shares`: of these machines only such parts, and of no others."""
    since_ms = max(0, clock_ms - before.at_ms)
    machines, per_hour, longest_ms = dict(before.machines), 0.0, 0.0
    for host, here in present.items():
        share = 1.0 if shares is None else shares.get(host, 0.0)
        if not share:
            continue
        there_ms = min(since_ms, here.up_ms)
        machines[host] = _longer(machines.get(host, MachineTime()), here, there_ms * share, clock_ms)
        per_hour += (here.per_hour or 0.0) * share
        longest_ms = max(longest_ms, there_ms if here.kind != SERVICE else 0.0)
    return changed(before, at_ms=clock_ms, ms=before.ms + longest_ms, per_hour=per_hour, machines=machines)


def _longer(time: MachineTime, here: Present, ms: float, clock_ms: int) -> MachineTime:
    unpriced = here.per_hour is None
    return MachineTime(
        here.kind or time.kind,
        here.per_hour,
        here.roles,
        time.ms + ms,
        time.unpriced_ms + ms * unpriced,
        time.money + ms / HOUR_MS * (here.per_hour or 0.0),
        clock_ms,
    )


def money_of(spending: Spending) -> float:
    """What it came to, as far as prices are known."""
    return sum(time.money for time in spending.machines.values())


def read_spending(bus: Bus, key: str) -> Spending | None:
    """What is written down of a run or of the fleet; None where nothing is."""
    with skip_unreadable(key):
        return decode(frame, Spending) if (frame := bus.get(key)) else None
    return None


class Accountant:
    """Charges fleet and runs at each look, and writes both down every few seconds; begins with what another daemon wrote."""

    def __init__(self, bus: Bus, budget: BudgetConfig, every_ms: int = WRITE_EVERY_MS) -> None:
        self._bus = bus
        self._budget = budget
        self._every_ms = every_ms
        self._fleet: Spending | None = None
        self._runs: dict[str, Spending] = {}
        self._at_work: tuple[str, ...] = ()
        self._written_ms = 0

    def note(self, desired: Desired, observed: Observed, now_ms: int) -> Observed:
        """What was observed, with what it cost. Raises `BrokerError`."""
        # With nothing to go by, the fleet's time begins now.
        fleet = self._fleet or read_spending(self._bus, keys.COST) or Spending(at_ms=now_ms)
        self._learn([run.name for run in desired.runs])
        present = present_of(observed.workers, self._budget.services)
        running = [run.name for run in desired.runs if run.state is RunState.RUNNING and run.name in observed.runs]
        fleet = charged(fleet, present if observed.workers else {}, now_ms)
        self._fleet = changed(fleet, currency=self._budget.currency)
        for run, shares in shares_of(present, running).items():
            active_ms = observed.runs[run].active_ms
            before = self._runs[run] if self._runs[run].at_ms <= active_ms else NOTHING_SPENT  # of another run of that name
            self._runs[run] = changed(charged(before, present, active_ms, shares), currency=self._budget.currency)
        self._write(running, now_ms)
        runs = {name: replace(seen, money=money_of(self._runs[name])) for name, seen in observed.runs.items() if name in self._runs}
        return replace(observed, runs={**observed.runs, **runs}, spent=self._fleet)

    def _learn(self, names: Sequence[str]) -> None:
        """What was written down of runs that are new to this daemon."""
        self._runs = {name: self._runs[name] for name in names if name in self._runs}
        unknown = [name for name in names if name not in self._runs]
        for name, frame in zip(unknown, self._bus.get_each([keys.cost(name) for name in unknown]) if unknown else (), strict=True):
            self._runs[name] = NOTHING_SPENT
            with skip_unreadable(keys.cost(name)):
                self._runs[name] = decode(frame, Spending) if frame else NOTHING_SPENT

    def _write(self, running: Sequence[str], now_ms: int) -> None:
        """What is due; a run that has just stopped at once, for it costs no more."""
        stopped = [run for run in self._at_work if run not in running and run in self._runs]
        self._at_work = tuple(running)
        due = abs(now_ms - self._written_ms) >= self._every_ms
        for run in (*stopped, *(running if due else ())):
            self._bus.put(keys.cost(run), encode(self._runs[run]))
        if due:
            self._written_ms = now_ms
            self._bus.put(keys.COST, encode(self._fleet or NOTHING_SPENT))


WARN_AT = (0.95, 0.8)  # of a budget, the later one first


@dataclass(frozen=True, slots=True)
class CostPart:
    """Machines of one kind that do the same."""

    name: str  # their roles
    kind: str
    machines: int
    hours: float  # of machines, together
    money: float
    unpriced_hours: float  # of these hours, without a known price


@dataclass(frozen=True, slots=True)
class RunCost:
    """Money is in `currency`, and of machines whose prices are known; `unpriced` names the others."""

    currency: str
    money: float
    per_hour: float  # at present; 0 while it does not run
    machine_hours: float
    components: tuple[CostPart, ...]
    unpriced: tuple[str, ...]  # hosts
    ends_by: str  # the goal that it reaches first; empty: none, at this pace
    ends_in_s: float | None
    ends_money: float | None  # what it will have cost then

    def as_text(self, run: str) -> list[str]:
        lines = [f"{part.name:<28} {_of(part):<24} {part.hours:>9.2f} h {_priced(part):>12}" for part in self.components]
        lines.append(
            f"{run}: {self.money:,.2f} {self.currency} so far, {self.machine_hours:.2f} machine-hours, {self.per_hour:,.2f} an hour now"
        )
        if self.ends_in_s is not None and self.ends_money is not None:
            lines.append(f"at this pace {self.ends_by} in {self.ends_in_s / 3600:.2f} h; it will have cost {self.ends_money:,.2f}")
        if self.unpriced:
            lines.append(f"no price is known of {', '.join(self.unpriced)}: set machine.per_hour or machine.kind there")
        return lines


def cost_of(spending: Spending, until: Mapping[str, float], done: Done, per_s: Mapping[str, float], *, running: bool) -> RunCost:
    """What was spent, and where it leads: `per_s` is the present pace by goal."""
    money, per_hour = money_of(spending), spending.per_hour if running else 0.0
    goal, in_s = Goals(until).first_end(done, {**per_s, "money": per_hour / 3600}) if running else ("", None)
    return RunCost(
        spending.currency,
        round(money, 4),
        round(per_hour, 4),
        sum(time.ms for time in spending.machines.values()) / HOUR_MS,
        _parts(spending),
        tuple(sorted(host for host, time in spending.machines.items() if time.unpriced_ms > 0 or time.per_hour is None)),
        goal,
        in_s,
        None if in_s is None else round(money + per_hour * in_s / 3600, 4),
    )


def warning(what: str, share: float) -> str:
    """What is said of a budget of which so much is spent, the same words until more has to be said; empty where there is no need."""
    return next((f"{level:.0%} of {what} is spent" for level in WARN_AT if level <= share < 1), "")


def _parts(spending: Spending) -> tuple[CostPart, ...]:
    groups: dict[tuple[str, str], list[str]] = {}
    for host, time in spending.machines.items():
        groups.setdefault((", ".join(time.roles), time.kind), []).append(host)
    results = []
    for (name, kind), hosts in sorted(groups.items()):
        times = [spending.machines[host] for host in hosts]
        hours, unpriced = (sum(getattr(time, field) for time in times) / HOUR_MS for field in ("ms", "unpriced_ms"))
        results.append(CostPart(name, kind, len(hosts), hours, round(sum(time.money for time in times), 4), unpriced))
    return tuple(results)


def _of(part: CostPart) -> str:
    return f"{part.machines} x {part.kind or 'unnamed kind'}"


def _priced(part: CostPart) -> str:
    return f"{part.money:,.2f}" + (" + ?" if part.unpriced_hours else "")
