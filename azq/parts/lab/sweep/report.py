"""The results of a study: as text, as values, and on a daemon's dashboard."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from azq.client import Client
from azq.config import Config
from azq.console.remote import client_of
from azq.errors import RequestError
from azq.parts.lab.sweep.plan import StudyPlan
from azq.parts.lab.sweep.sweep import Progress, importances, line, sweep
from azq.parts.lab.sweep.trial import Trial
from azq.status.results import MOST_TRIALS, StudyReport, TrialReport

ENDS = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def as_values(plan: StudyPlan, study: optuna.Study) -> StudyReport:
    """The newest trials in order, the best, importances."""
    trials = study.get_trials(deepcopy=False)
    best = _best(plan, trials)
    return StudyReport(
        study=plan.name,
        game=plan.game,
        metric=plan.metric,
        best=_row(best) if best else None,
        importances=importances(study),
        trials=[_row(trial) for trial in trials[-MOST_TRIALS:]],
        until=plan.until,
        upwards=plan.upwards,
        log=plan.log_scaled,
    )


def as_text(plan: StudyPlan, study: optuna.Study) -> str:
    """The best trial and what mattered, in a few lines."""
    trials = study.get_trials(deepcopy=False)
    lines = [f"study {plan.name}: {_counts(trials)}"]
    if best := _best(plan, trials):
        lines += ["best: " + line(plan, best), *(f"  --set {name}={value}" for name, value in best.params.items())]
    return "\n".join(lines + [f"importance {share:.0%}  {name}" for name, share in importances(study).items()])


def _counts(trials: Sequence[FrozenTrial]) -> str:
    return ", ".join(f"{sum(trial.state is state for trial in trials)} {state.name.lower()}" for state in ENDS)


def _best(plan: StudyPlan, trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    whole = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    return max(whole, key=lambda trial: _worth(plan, trial), default=None)


def _worth(plan: StudyPlan, trial: FrozenTrial) -> float:
    value = float(trial.value or 0.0)  # those without one are left out before
    return value if plan.upwards else -value


def _row(trial: FrozenTrial) -> TrialReport:
    """A trial that runs has the newest figure of its run."""
    last = trial.last_step
    value = trial.value if last is None or trial.value is not None else trial.intermediate_values[last]
    return TrialReport(number=trial.number, state=trial.state.name.lower(), value=value, settings=trial.params)


SHOWN_EVERY_S = 5.0


def swept(plan: StudyPlan, folder: Path, config: Config, url: str, progress: Progress) -> optuna.Study:
    """Runs what is left of a study, which the daemon at `url`, where one is named, shows; raises as `sweep`."""
    if not url:
        return sweep(plan, folder, progress, partial(Trial, plan, folder))
    with contextlib.closing(client_of(config, url)) as client:
        return sweep(plan, folder, progress, partial(Trial, plan, folder), Shown(plan, client, progress).show)


class Shown:
    """Sends the study to a daemon, every few seconds at most; a failure is reported once. Thread-safe."""

    def __init__(self, plan: StudyPlan, client: Client, progress: Progress) -> None:
        self._plan = plan
        self._client = client
        self._progress = progress
        self._due_s = 0.0
        self._failed = False
        self._lock = threading.Lock()

    def show(self, study: optuna.Study, now: bool) -> None:
        with self._lock:
            if time.monotonic() < self._due_s and not now:
                return
            self._due_s = time.monotonic() + SHOWN_EVERY_S
            try:
                self._client.tell_study(as_values(self._plan, study))
                self._failed = False
            except RequestError as error:
                if not self._failed:
                    self._progress(f"the dashboard does not show the study: {error}")
                self._failed = True
