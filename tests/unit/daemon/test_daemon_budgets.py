"""What budgets ask of runs and machines: warnings, then an end that waits for evaluations and for nobody's ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reconcile_worlds import CONFIG, EMPTY, NOW, SECTIONS, view

from azq.config import BudgetConfig
from azq.goals import is_spent
from azq.ledger.types import JobState, RunState
from azq.status.state import NO_ROUND, Desired, DesiredRun, Observed, ObservedRun
from azq.wire.kinds import Kind
from azq.wire.machines import MachineTime, Spending
from daemon.decide.actions import Action, Condition, EndFleet, EndRun, EnqueueEval
from daemon.decide.guard import guard, spent_share
from daemon.decide.reconcile import reconcile

BUDGET = BudgetConfig(money=10.0, hours=4.0)
LONG_AGO = NOW - 60_000
EVALUATION = EnqueueEval("r", "cpu", NO_ROUND, ())


def spent(money: float = 0.0, hours: float = 0.0) -> Spending:
    return Spending(ms=hours * 3_600_000, machines={"h": MachineTime(money=money)})


def look(state: RunState, fleet: Spending, changed_ms: int = LONG_AGO, until: dict[str, float] | None = None, **seen: Any) -> Any:
    run = DesiredRun("r", state, SECTIONS, until or {}, changed_ms)
    return Desired((run,)), Observed(runs={"r": ObservedRun(EMPTY, **seen)}, spent=fleet)


def asked(
    state: RunState, fleet: Spending, decided: tuple[Action, ...] = (), budget: BudgetConfig = BUDGET, since_ms: int = 0, **world: Any
) -> list[Action]:
    desired, observed = look(state, fleet, **world)
    return guard(desired, observed, decided, NOW, budget, since_ms)


@pytest.mark.parametrize(
    ("money", "hours", "said"),
    [(7.9, 0, ""), (8.0, 0, "80% of the fleet's budget (10 USD) is spent"), (0, 3.9, "95% of the fleet's budget (4 h) is spent")],
)
def test_near_the_end_it_warns_with_words_that_stay_the_same(money: float, hours: float, said: str) -> None:
    assert [str(action) for action in asked(RunState.RUNNING, spent(money, hours))] == ([said] if said else [])


def test_a_run_that_ends_by_money_warns_of_its_own() -> None:
    found = asked(RunState.RUNNING, spent(), until={"money": 2.0}, money=1.95)
    assert found == [Condition("budget", "r", "95% of the run's 2 USD is spent")]
    assert asked(RunState.PAUSED, spent(), until={"money": 2.0}, money=1.95) == []


def test_a_run_ends_once_its_money_is_spent() -> None:
    desired, observed = look(RunState.RUNNING, spent(), until={"money": 2.0}, money=2.01)
    (ending,) = reconcile(desired, observed, NOW, CONFIG, lambda _: False)
    assert ending == EndRun("r", RunState.FINISHED, "money=2 reached", LONG_AGO)
    assert is_spent(ending.reason)


def test_what_is_spent_ends_all_runs_and_no_machine_before_them() -> None:
    (ending,) = asked(RunState.RUNNING, spent(money=10.0))
    assert ending == EndRun("r", RunState.FINISHED, "budget spent: 10 USD", LONG_AGO)
    assert is_spent(ending.reason)


def test_machines_wait_for_what_is_under_way() -> None:
    gone = spent(money=11.0)
    assert asked(RunState.FINISHED, gone) == [EndFleet("budget spent: 10 USD")]
    assert asked(RunState.FINISHED, gone, (EVALUATION,)) == []
    assert (
        asked(RunState.FINISHED, gone, (Condition("unroutable", "r", "eval.cpu", "words"),)) == []
    )  # nobody is there to evaluate: patience
    assert asked(RunState.FINISHED, gone, changed_ms=NOW - 1000) == []
    assert asked(RunState.FINISHED, gone, jobs=(view(1, JobState.QUEUED, kind=Kind.EVAL),)) == []
    assert asked(RunState.PAUSED, gone, jobs=(view(1, JobState.LEASED),), changed_ms=NOW) == []


def test_machines_do_not_wait_for_ever() -> None:
    found = asked(RunState.FINISHED, spent(money=11.0), (EVALUATION,), changed_ms=NOW - 900_000)
    assert found == [EndFleet("budget spent: 10 USD")]


def test_machines_may_end_with_the_runs_yet_not_with_those_of_before() -> None:
    with_runs = BudgetConfig(with_runs=True)
    assert asked(RunState.FINISHED, spent(), budget=with_runs, since_ms=LONG_AGO - 1) == [EndFleet("all runs have ended")]
    assert asked(RunState.FINISHED, spent(), budget=with_runs, since_ms=LONG_AGO) == [EndFleet("all runs have ended")]
    assert asked(RunState.FINISHED, spent(), budget=with_runs, since_ms=LONG_AGO + 1) == []
    assert asked(RunState.PAUSED, spent(), budget=with_runs) == []
    assert guard(Desired(), Observed(), (), NOW, with_runs, 0) == []


def test_without_a_budget_nothing_is_asked() -> None:
    assert spent_share(BudgetConfig(), spent(1e6, 1e6)) == (0.0, "")
    assert asked(RunState.RUNNING, spent(1e6, 1e6), budget=BudgetConfig()) == []


states = st.sampled_from(list(RunState))


@settings(max_examples=200)
@given(
    st.lists(st.tuples(states, st.integers(0, 700), st.booleans()), max_size=4),
    st.floats(0, 30),
    st.floats(0, 10),
    st.booleans(),
    st.booleans(),
)
def test_machines_end_only_once_nothing_runs_and_something_is_spent(runs, money, hours, with_runs, decides):
    desired = Desired(tuple(DesiredRun(f"r{i}", state, SECTIONS, {}, NOW - 1000 * ago_s) for i, (state, ago_s, _) in enumerate(runs)))
    seen = {f"r{i}": ObservedRun(EMPTY, jobs=(view(i, JobState.LEASED),) * held) for i, (_, _, held) in enumerate(runs)}
    budget = BUDGET.model_copy(update={"with_runs": with_runs})
    found = guard(desired, Observed(runs=seen, spent=spent(money, hours)), (EVALUATION,) * decides, NOW, budget, 0)
    share, _ = spent_share(budget, spent(money, hours))
    running = {run.name for run in desired.runs if run.state is RunState.RUNNING}
    assert {action.run for action in found if isinstance(action, EndRun)} == (running if share >= 1 else set())
    ends = [action for action in found if isinstance(action, EndFleet)]
    if ends:
        assert not running
        assert share >= 1 or with_runs
    if share >= 1 and not running and all(ago_s >= 900 for _, ago_s, _ in runs):
        assert ends, "a spent fleet ends, whoever holds what"
    assert all(not isinstance(action, Condition) for action in found) or 0.8 <= share < 1
