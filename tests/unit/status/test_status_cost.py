"""How a run's cost is told: by component, with machines of unknown price named, and with the end in sight."""

from __future__ import annotations

import pytest

from azq.goals import Done
from azq.status.cost import cost_of, warning
from azq.status.spending import HOUR_MS
from azq.wire.machines import MachineTime, Spending

SPENT = Spending(
    per_hour=3.0,
    currency="EUR",
    machines={
        "gpu1": MachineTime("tower", 1.0, ("inference",), 2 * HOUR_MS, 0.0, 2.0),
        "gpu2": MachineTime("tower", 1.0, ("inference",), 1 * HOUR_MS, 0.0, 1.0),
        "old": MachineTime("", None, ("selfplay",), 4 * HOUR_MS, 4 * HOUR_MS, 0.0),
    },
)


def test_machines_that_do_the_same_are_one_component() -> None:
    cost = cost_of(SPENT, {}, Done(0, 0, 0), {}, running=True)
    assert [(part.name, part.kind, part.machines, part.hours, part.money) for part in cost.components] == [
        ("inference", "tower", 2, 3.0, 3.0),
        ("selfplay", "", 1, 4.0, 0.0),
    ]
    assert (cost.money, cost.currency, cost.machine_hours, cost.unpriced, cost.ends_in_s) == (3.0, "EUR", 7.0, ("old",), None)
    text = "\n".join(cost.as_text("first"))
    assert "first: 3.00 EUR so far, 7.00 machine-hours, 3.00 an hour now" in text
    assert "no price is known of old: set machine.per_hour or machine.kind there" in text


@pytest.mark.parametrize(
    ("until", "by", "in_s"),
    [
        ({"minutes": 90.0}, "minutes=90", 1800.0),
        ({"games": 1000.0}, "games=1000", 250.0),
        ({"steps": 60.0, "games": 1000.0}, "steps=60", 100.0),
        ({"money": 4.5, "minutes": 600.0}, "money=4.5", 1800.0),
        ({"minutes": 30.0}, "minutes=30", 0.0),
    ],
)
def test_the_end_is_that_of_the_goal_that_comes_first_at_this_pace(until: dict[str, float], by: str, in_s: float) -> None:
    cost = cost_of(SPENT, until, Done(60, 500, 50, 3.0), {"games": 2.0, "steps": 0.1}, running=True)
    assert (cost.ends_by, cost.ends_in_s) == (by, pytest.approx(in_s))
    assert cost.ends_money == pytest.approx(3.0 + 3.0 * in_s / 3600, abs=1e-4)


def test_a_machine_without_a_price_and_hours_from_before_its_price_are_both_told() -> None:
    machines = {"new": MachineTime("", None, ("selfplay",), 0, 0.0, 0.0), "late": MachineTime("", 1.0, ("selfplay",), 9, 5.0, 0.0)}
    assert cost_of(Spending(machines=machines), {}, Done(0, 0, 0), {}, running=True).unpriced == ("late", "new")


def test_money_is_told_to_a_hundredth_of_a_cent() -> None:
    odd = Spending(per_hour=1 / 3, currency="EUR", machines={"h": MachineTime("tower", 1 / 3, ("inference",), HOUR_MS, 0.0, 2 / 3)})
    cost = cost_of(odd, {"minutes": 20.0}, Done(0, 0, 0), {}, running=True)
    assert (cost.money, cost.per_hour, cost.ends_money) == (0.6667, 0.3333, 0.7778)


def test_no_end_is_in_sight_without_a_pace_or_while_it_does_not_run() -> None:
    assert cost_of(SPENT, {"games": 10.0}, Done(0, 0, 0), {"games": 0.0}, running=True).ends_in_s is None
    paused = cost_of(SPENT, {"minutes": 10.0}, Done(0, 0, 0), {}, running=False)
    assert (paused.ends_in_s, paused.per_hour) == (None, 0.0)


@pytest.mark.parametrize(("share", "said"), [(0.79, ""), (0.8, "80% of it is spent"), (0.96, "95% of it is spent"), (1.0, "")])
def test_it_warns_twice(share: float, said: str) -> None:
    assert warning("it", share) == said
