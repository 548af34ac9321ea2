"""What budgets ask for: warnings near the end, then runs that finish, and once nothing is left to do machines that end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from azq.config import BudgetConfig
from azq.config.host import DRAIN_S
from azq.goals import BUDGET_SPENT
from azq.ledger.types import JobState, RunState
from azq.status.spending import HOUR_MS, money_of, warning
from azq.status.state import Desired, DesiredRun, Observed
from azq.wire.machines import Spending
from daemon.decide import actions as do
from daemon.decide.actions import Action
from daemon.decide.notices import ENDS
from daemon.decide.rounds import SETTLE_MS


def guard(
    desired: Desired, observed: Observed, decided: Sequence[Action], now_ms: int, budget: BudgetConfig, since_ms: int
) -> list[Action]:
    """What the budgets ask for, beside what was `decided` in this look; `since_ms`: when this daemon began.

    Runs that end by it drain, are evaluated and save what they have like all others that reach their goal. Machines end when that is
    done, or `DRAIN_S` after the last run ended.
    """
    share, what = spent_share(budget, observed.spent)
    actions: list[Action] = [*_warnings(desired, observed, budget.currency), *_warning("", f"the fleet's budget ({what})", share)]
    running = [run for run in desired.runs if run.state is RunState.RUNNING]
    if share >= 1:
        actions += [do.EndRun(run.name, RunState.FINISHED, f"{BUDGET_SPENT}: {what}", run.changed_ms) for run in running]
    reason = f"{BUDGET_SPENT}: {what}" if share >= 1 else _all_ended(desired.runs, since_ms) if budget.with_runs else ""
    if reason and not running and _is_drained(desired, observed, decided, now_ms):
        actions.append(do.EndFleet(reason))
    return actions


def spent_share(budget: BudgetConfig, spent: Spending) -> tuple[float, str]:
    """How much of the fleet's budget is gone, of that limit which comes first, and its words; 0 without any."""
    limits = [
        *([(spent.ms / HOUR_MS / budget.hours, f"{budget.hours:g} h")] if budget.hours else []),
        *([(money_of(spent) / budget.money, f"{budget.money:g} {budget.currency}")] if budget.money else []),
    ]
    return max(limits, default=(0.0, ""))


def _warnings(desired: Desired, observed: Observed, currency: str) -> list[Action]:
    """Of running runs that end by money."""
    return [
        report
        for run in desired.runs
        if run.state is RunState.RUNNING and (limit := run.until.get("money")) and (seen := observed.runs.get(run.name))
        for report in _warning(run.name, f"the run's {limit:g} {currency}", seen.money / limit)
    ]


def _warning(run: str, what: str, share: float) -> list[Action]:
    text = warning(what, share)
    return [do.Condition("budget", run, text)] if text else []


def _all_ended(runs: Sequence[DesiredRun], since_ms: int) -> str:
    """Says so where all have ended, one of them while this daemon looked on: a fleet that begins with old runs goes on."""
    over = runs and all(run.state in ENDS for run in runs) and max(run.changed_ms for run in runs) >= since_ms
    return "all runs have ended" if over else ""


def _is_drained(desired: Desired, observed: Observed, decided: Sequence[Action], now_ms: int) -> bool:
    """Whether no worker holds a game any more and the last evaluations are over, or have taken too long."""
    ended = {run.name for run in desired.runs if run.state in ENDS}
    stopped_ms = max((run.changed_ms for run in desired.runs), default=0)  # the last of them
    if now_ms - stopped_ms >= DRAIN_S * 1000:
        return True
    at_work = any(view.state is JobState.LEASED or name in ended for name, seen in observed.runs.items() for view in seen.jobs)
    wanted = any(not isinstance(action, do.Condition) or action.run in ended for action in decided)
    return not at_work and not wanted and now_ms - stopped_ms >= SETTLE_MS
