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
from azq.ledger.types import LedgerCounts, RunState
from azq.status.spending import HOUR_MS, Accountant, Present, charged, money_of, present_of, read_spending, shares_of
from azq.status.state import Desired, DesiredRun, Observed, ObservedRun
from azq.status.workers import staying
from azq.wire import keys
from azq.wire.machines import Spending
from azq.wire.messages import Heartbeat

COUNTS = LedgerCounts(0, 0, 0, 0, 0, 0, 0)
HOUR = int(HOUR_MS)
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
    assert present["a"] == Present("box", 2.0, ("eval", "selfplay"), 100 * HOUR_MS)
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
