"""What machines cost: each hour once, of each run its part, and nothing for a time in which nobody was there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from factories import heartbeat
from hypothesis import given
from hypothesis import strategies as st
from memory_broker import MemoryBus

from azq.config import BudgetConfig, RunSections
from azq.goals import Done
from azq.ledger.types import LedgerCounts, RunState
from azq.status.spending import Accountant, Present, charged, cost_of, money_of, present_of, read_spending, shares_of, warning
from azq.status.state import Desired, DesiredRun, Observed, ObservedRun
from azq.status.workers import staying
from azq.wire import keys
from azq.wire.machines import MachineTime, Spending
from azq.wire.messages import Heartbeat

COUNTS = LedgerCounts(0, 0, 0, 0, 0, 0, 0)
HOUR = 3_600_000  # ms
BUDGET = BudgetConfig()


def beat(host: str, role: str = "selfplay", run: str = "", up_h: float = 100.0, price: float | None = 2.0) -> Heartbeat:
    sent_ms = 1000 * HOUR
    started_ms = sent_ms - int(up_h * HOUR)
    return heartbeat(role, f"{role}@{host}", host, started_ms=started_ms, sent_ms=sent_ms, run=run, machine_kind="box", per_hour=price)


def world(*beats: Heartbeat, **active_h: float) -> tuple[Desired, Observed]:
    runs = {name: ObservedRun(COUNTS, active_ms=int(hours * HOUR)) for name, hours in active_h.items()}
    return Desired(tuple(DesiredRun(name, RunState.RUNNING, RunSections()) for name in runs)), Observed(beats, runs)


def test_an_hour_of_a_machine_costs_its_price_and_one_without_a_price_is_counted_apart() -> None:
    present = present_of([beat("a"), beat("a", "eval"), beat("b", price=None)])
    assert present["a"] == Present("box", 2.0, ("eval", "selfplay"), 100 * HOUR)
    spending = charged(Spending(at_ms=HOUR), present, 3 * HOUR)
    assert money_of(spending) == pytest.approx(4.0)
    assert (spending.machines["b"].ms, spending.machines["b"].unpriced_ms, spending.machines["b"].money) == (2 * HOUR, 2 * HOUR, 0.0)
    assert (spending.ms, spending.per_hour) == (2 * HOUR, 2.0)


def test_a_machine_costs_nothing_before_its_oldest_process_began() -> None:
    present = present_of([beat("a", up_h=0.25), beat("a", "eval", up_h=0.5)])
    assert money_of(charged(Spending(at_ms=HOUR), present, 9 * HOUR)) == pytest.approx(1.0)


def test_a_clock_that_is_set_back_costs_nothing() -> None:
    assert money_of(charged(Spending(at_ms=9 * HOUR), present_of([beat("a")]), 3 * HOUR)) == 0.0


def test_a_machine_of_several_runs_costs_each_its_part_and_a_learner_is_its_own_runs() -> None:
    present = present_of(
        [beat("both"), beat("learner", "learner", run="first"), beat("broker", "host"), beat("gone", "learner", run="old")]
    )
    assert shares_of(present, ["first", "second"]) == {
        "first": {"both": 0.5, "learner": 1.0, "broker": 0.5},
        "second": {"both": 0.5, "broker": 0.5},
    }
    assert shares_of(present, []) == {}


hosts = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.sets(st.sampled_from(["r", "s", "t"])), st.floats(0, 9)), max_size=6)


@given(hosts, st.lists(st.sampled_from(["r", "s", "t"]), unique=True))
def test_runs_together_never_pay_for_more_than_there_is(found: dict[str, tuple[set[str], float]], running: list[str]) -> None:
    present = {host: Present(runs=frozenset(runs), per_hour=price) for host, (runs, price) in found.items()}
    shares = shares_of(present, running)
    for host, here in present.items():
        served = running if not here.runs else [run for run in running if run in here.runs]
        assert sum(parts.get(host, 0.0) for parts in shares.values()) == pytest.approx(1.0 if served else 0.0)
    whole = money_of(charged(Spending(), present, HOUR))
    assert sum(money_of(charged(Spending(), present, HOUR, parts)) for parts in shares.values()) <= whole + 1e-9


def note(accountant: Accountant, now_h: float, *beats: Heartbeat, **active_h: float) -> Observed:
    return accountant.note(*world(*beats, **active_h), int(now_h * HOUR))


def test_another_daemon_goes_on_where_the_last_one_stopped() -> None:
    bus = MemoryBus()
    first = Accountant(bus, BUDGET)
    note(first, 10, beat("a"), r=0.0)
    assert note(first, 11, beat("a"), r=1.0).runs["r"].money == pytest.approx(2.0)
    after = note(Accountant(bus, BUDGET), 14, beat("a"), r=4.0)  # nobody looked for three hours in which the machine was there
    assert after.runs["r"].money == pytest.approx(8.0)
    assert money_of(after.spent) == pytest.approx(8.0)
    assert read_spending(bus, keys.cost("r")) == after_of(bus, "r")
    night = note(Accountant(bus, BUDGET), 38, beat("a", up_h=0.5), r=4.5)  # all was off, and the run with it
    assert (night.runs["r"].money, money_of(night.spent)) == (pytest.approx(9.0), pytest.approx(9.0))


def after_of(bus: MemoryBus, run: str) -> Spending | None:
    spending = read_spending(bus, keys.cost(run))
    assert spending is not None
    assert spending.currency == "USD"
    return spending


def test_a_run_that_was_paused_pays_for_none_of_that_time() -> None:
    accountant = Accountant(MemoryBus(), BUDGET)
    note(accountant, 1, beat("a"), r=0.0)
    note(accountant, 5, beat("a"), r=0.0)
    assert note(accountant, 6, beat("a"), r=1.0).runs["r"].money == pytest.approx(2.0)


def test_what_a_run_cost_is_written_when_it_stops() -> None:
    bus = MemoryBus()
    accountant = Accountant(bus, BUDGET, every_ms=100 * HOUR)
    note(accountant, 1000, beat("a"), r=0.0)
    note(accountant, 1001, beat("a"), r=1.0)
    assert money_of(read_spending(bus, keys.cost("r")) or Spending()) == 0.0
    desired, observed = world(beat("a"), r=1.0)
    paused = Desired((replace(desired.runs[0], state=RunState.PAUSED),))
    accountant.note(paused, observed, 1002 * HOUR)
    assert money_of(read_spending(bus, keys.cost("r")) or Spending()) == pytest.approx(2.0)


def test_another_run_of_the_same_name_begins_with_nothing() -> None:
    accountant = Accountant(MemoryBus(), BUDGET)
    note(accountant, 1, beat("a"), r=0.0)
    note(accountant, 6, beat("a"), r=5.0)
    assert note(accountant, 7, beat("a"), r=0.5).runs["r"].money == pytest.approx(1.0)


def test_services_cost_as_long_as_machines_are_there() -> None:
    accountant = Accountant(MemoryBus(), BudgetConfig(services={"s3": 0.5}))
    note(accountant, 1, beat("a"))
    assert money_of(note(accountant, 3, beat("a")).spent) == pytest.approx(5.0)
    assert money_of(note(accountant, 4).spent) == pytest.approx(5.0)


def test_what_is_unreadable_begins_anew() -> None:
    bus: Any = MemoryBus()
    bus.put(keys.cost("r"), b"other bytes")
    bus.put(keys.COST, b"other bytes")
    assert note(Accountant(bus, BUDGET), 3, beat("a"), r=1.0).runs["r"].money == pytest.approx(2.0)


def test_machines_that_leave_are_planned_without() -> None:
    workers = (beat("a"), beat("b"), msgspec.structs.replace(beat("b", "host"), leaving="spot interruption"))
    assert [one.host for one in staying(workers)] == ["a"]
    assert staying(workers[:2]) == workers[:2]


SPENT = Spending(
    per_hour=3.0,
    currency="EUR",
    machines={
        "gpu1": MachineTime("tower", 1.0, ("inference",), 2 * HOUR, 0.0, 2.0),
        "gpu2": MachineTime("tower", 1.0, ("inference",), 1 * HOUR, 0.0, 1.0),
        "old": MachineTime("", None, ("selfplay",), 4 * HOUR, 4 * HOUR, 0.0),
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
    odd = Spending(per_hour=1 / 3, currency="EUR", machines={"h": MachineTime("tower", 1 / 3, ("inference",), HOUR, 0.0, 2 / 3)})
    cost = cost_of(odd, {"minutes": 20.0}, Done(0, 0, 0), {}, running=True)
    assert (cost.money, cost.per_hour, cost.ends_money) == (0.6667, 0.3333, 0.7778)


def test_no_end_is_in_sight_without_a_pace_or_while_it_does_not_run() -> None:
    assert cost_of(SPENT, {"games": 10.0}, Done(0, 0, 0), {"games": 0.0}, running=True).ends_in_s is None
    paused = cost_of(SPENT, {"minutes": 10.0}, Done(0, 0, 0), {}, running=False)
    assert (paused.ends_in_s, paused.per_hour) == (None, 0.0)


@pytest.mark.parametrize(("share", "said"), [(0.79, ""), (0.8, "80% of it is spent"), (0.96, "95% of it is spent"), (1.0, "")])
def test_it_warns_twice(share: float, said: str) -> None:
    assert warning("it", share) == said
