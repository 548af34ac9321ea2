"""What a run costs: so far, by component, and when it reaches its end at its present pace. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from azq.goals import Done, Goals
from azq.status.spending import HOUR_MS, money_of
from azq.wire.machines import Spending

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
