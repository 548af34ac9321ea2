"""What a cluster costs: an hour of each of its groups, a run, its scenarios. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from azq.errors import ConfigError
from azq.parts.cluster.description import Cluster, Stay


@dataclass(frozen=True, slots=True)
class Component:
    """A group of machines and what it costs for an hour."""

    name: str
    kind: str
    count: int
    each: float
    per_hour: float


@dataclass(frozen=True, slots=True)
class Bill:
    """What it comes to; `ends_after_h` is when the budget is spent, where that is sooner than `hours`."""

    cluster: str
    currency: str
    hours: float
    per_hour: float
    total: float
    components: Sequence[Component]
    scenarios: Sequence[tuple[str, float, float, float, float]]  # title, hours from and to, money from and to
    ends_after_h: float | None

    def values(self) -> dict[str, Any]:
        names = ("title", "hours_from", "hours_to", "from", "to")
        return {**asdict(self), "scenarios": [dict(zip(names, row, strict=True)) for row in self.scenarios]}

    def as_text(self) -> list[str]:
        rows = [(f"{part.count} x {part.kind}" if part.count > 1 else part.kind, part.name, part.per_hour) for part in self.components]
        rows.append(("", "an hour", self.per_hour))
        lines = [f"{name:<20} {what:<28} {money:>10,.2f}" for what, name, money in rows]
        lines.append(f"{self.cluster}: {self.total:,.2f} {self.currency} for {self.hours:g} h")
        lines += [f"{title}: {low:g} to {high:g} h, {least:,.2f} to {most:,.2f}" for title, low, high, least, most in self.scenarios]
        if self.ends_after_h is not None:
            lines.append(f"the budget ends it after {self.ends_after_h:.2f} h")
        return lines


def bill(cluster: Cluster, hours: float | None = None) -> Bill:
    """Prices times counts; raises `ConfigError` for a price that is missing."""
    components = []
    for name, group in cluster.machines.items():
        price = cluster.kinds[group.kind].per_hour
        if price is None:
            raise ConfigError(f"cluster {cluster.name}: no price of {group.kind!r} ({name}); set per_hour in [kinds.{group.kind!r}]")
        components.append(Component(name, group.kind, group.count, price, round(group.count * price, 4)))
    per_hour, wanted = round(sum(part.per_hour for part in components), 4), hours or cluster.hours
    scenarios = [_scenario(stay, per_hour) for stay in cluster.scenarios]
    return Bill(
        cluster.name,
        cluster.currency,
        wanted,
        per_hour,
        round(per_hour * wanted, 2),
        components,
        scenarios,
        _ends(cluster, per_hour, wanted),
    )


def _ends(cluster: Cluster, per_hour: float, hours: float) -> float | None:
    by_money = cluster.budget.money / per_hour if cluster.budget.money is not None and per_hour else None
    limits = [limit for limit in (cluster.budget.hours, by_money) if limit is not None and limit < hours]
    return min(limits, default=None)


def _scenario(stay: Stay, per_hour: float) -> tuple[str, float, float, float, float]:
    low, high = stay.hours
    return stay.title, low, high, round(per_hour * low, 2), round(per_hour * high, 2)
