"""`azq sweep`: Optuna proposes settings, a run trains with each; finished trials stay finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import DatabaseError

from azq.client import Client
from azq.config import Config
from azq.console.remote import client_of
from azq.errors import NotFound, RequestError, StateConflict, StoreError
from azq.files import locked
from azq.host.rundir import make_folder
from azq.parts.lab.sweep.plan import Choices, Range, StudyPlan, measured
from azq.parts.lab.sweep.trial import Trial, TrialFailed
from azq.status.results import MOST_TRIALS, Scalar, StudyReport, TrialReport

DATABASE = "study.db"
SPACE = "space"  # the attribute that says what the study was begun with
FIRST_TRIALS = 4  # before any is pruned
STEPS_PER_PROGRESS = 1000  # a trial's progress in thousandths: where trials are compared
DONE = (TrialState.COMPLETE, TrialState.PRUNED)
ENDS = (*DONE, TrialState.FAIL)
SHOWN_EVERY_S = 5.0

Progress = Callable[[str], None]
Begin = Callable[[int, Mapping[str, Scalar]], Trial]  # a trial by its number and settings
Show = Callable[[optuna.Study, bool], None]  # whether it must be seen at once


def sweep(plan: StudyPlan, folder: Path, progress: Progress, begin: Begin, show: Show = lambda study, now: None) -> optuna.Study:
    """Runs what is left of a study's trials; those that were interrupted begin again with their settings.

    `show` gets the study at its beginning and end, and in between when there are new figures.

    Raises `StateConflict` where another sweeps the study, or it was begun with another space, `StoreError` for a database that is locked
    or damaged, `KeyboardInterrupt` once all runs of it have ended.
    """
    make_folder(folder)
    with (
        _database_errors(folder),
        locked(folder / ".lock", lambda pid: f"azq sweep (pid {pid}) works on study {plan.name} in {folder}; wait for it"),
    ):
        study = _begin(plan, folder)
        _begin_again(study)
        left = plan.trials - len(study.get_trials(deepcopy=False, states=DONE))
        show(study, True)
        try:
            Sweeper(plan, study, progress, begin, show).run(left)
        finally:
            show(study, True)
        return study


def open_study(plan: StudyPlan, folder: Path) -> optuna.Study:
    """A study to look at. Raises `NotFound` where it has not begun, `StoreError`."""
    if not (folder / DATABASE).is_file():
        raise NotFound(f"study {plan.name} has not begun: there is no {folder / DATABASE}")
    with _database_errors(folder):
        return _begin(plan, folder)


@dataclass(eq=False)
class Sweeper:
    """The trials of one call, `at_once` side by side."""

    plan: StudyPlan
    study: optuna.Study
    progress: Progress
    begin: Begin
    show: Show
    _space: dict[str, BaseDistribution] = field(init=False)
    _running: set[Trial] = field(default_factory=set)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._space = {name: distribution(part) for name, part in self.plan.space.items()}

    def run(self, trials: int) -> None:
        """Raises what a trial raises besides `TrialFailed`, and `KeyboardInterrupt`, when all that runs has ended."""
        with ThreadPoolExecutor(self.plan.at_once, "trial") as pool:
            waiting = [pool.submit(self._trial) for _ in range(max(0, trials))]
            try:
                for done in as_completed(waiting):
                    done.result()
            except BaseException:
                self._stopping.set()
                with self._lock:
                    for run in self._running:
                        run.end()
                raise

    def _trial(self) -> None:
        if self._stopping.is_set():
            return
        with self._lock:
            trial = self.study.ask(self._space)
            run = self.begin(trial.number, trial.params)
            self._running.add(run)
        if self._stopping.is_set():
            run.end()
        try:
            value, pruned = self._follow(trial, run)
        except TrialFailed as error:
            self.study.tell(trial, state=TrialState.FAIL)
            self.progress(str(error))
            return
        finally:
            with self._lock:
                self._running.discard(run)
        if self._stopping.is_set():
            return  # left as running: the next call begins it again
        if value is None:
            self.study.tell(trial, state=TrialState.FAIL)
            self.progress(f"trial {run.name}: no {self.plan.metric} was measured before {self.plan.until}; give trials longer")
            return
        frozen = self.study.tell(trial, state=TrialState.PRUNED) if pruned else self.study.tell(trial, value)
        self.progress(line(self.plan, frozen))
        self.show(self.study, True)

    def _follow(self, trial: optuna.Trial, run: Trial) -> tuple[float | None, bool]:
        """The newest figure, and whether the run was ended for it."""
        value, pruned, reported = None, False, -1
        for status in run.statuses():
            value = figure if (figure := measured(self.plan, status)) is not None else value
            step = int(status.progress * STEPS_PER_PROGRESS)
            if value is None or pruned or step <= reported:
                continue
            reported = step
            trial.report(value, step)
            self.show(self.study, False)
            if self.plan.prune and status.progress < 1.0 and trial.should_prune():
                pruned = True
                run.end()
        return value, pruned


def distribution(part: Range | Choices) -> BaseDistribution:
    """What Optuna draws from."""
    if isinstance(part, Choices):
        return CategoricalDistribution(part.choices)
    if isinstance(part.low, int) and isinstance(part.high, int):
        return IntDistribution(part.low, part.high, log=part.log)
    return FloatDistribution(float(part.low), float(part.high), log=part.log)


def line(plan: StudyPlan, trial: FrozenTrial) -> str:
    """A trial in one line."""
    value = "-" if trial.value is None else f"{trial.value:.4g}"
    chosen = " ".join(f"{name}={_short(value)}" for name, value in trial.params.items())
    return f"trial {trial.number}: {plan.metric} {value} {trial.state.name.lower()}  {chosen}"


def importances(study: optuna.Study) -> dict[str, float]:
    """Each setting's share of what varies (Watanabe et al., IJCAI 2023: PED-ANOVA), largest first; none before four whole trials."""
    if len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) < FIRST_TRIALS:
        return {}
    with suppress(ValueError, RuntimeError):  # where all trials are worth the same
        return dict(optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()))
    return {}


def _begin(plan: StudyPlan, folder: Path) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=f"sqlite:///{folder / DATABASE}",
        study_name=plan.name,
        load_if_exists=True,
        direction="maximize" if plan.upwards else "minimize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=FIRST_TRIALS, n_warmup_steps=STEPS_PER_PROGRESS // 4),
    )
    space = {name: part.model_dump() for name, part in plan.space.items()}
    if study.user_attrs.setdefault(SPACE, space) != space:
        raise StateConflict(f"study {plan.name} in {folder} was begun with another space; give this one another name")
    study.set_user_attr(SPACE, space)
    # A resumed study must not draw the first proposals again.
    drawn = len(study.get_trials(deepcopy=False))
    study.sampler = optuna.samplers.TPESampler(seed=plan.seed + drawn, constant_liar=plan.at_once > 1)
    return study


def _begin_again(study: optuna.Study) -> None:
    """Puts the trials that were cut off in the queue; under the study's lock, since trials of another sweep look the same."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params)


@contextmanager
def _database_errors(folder: Path) -> Iterator[None]:
    """Raises errors of the database as `StoreError`."""
    try:
        yield
    except DatabaseError as error:
        why = str(error.orig)
        raise StoreError(f"the study in {folder / DATABASE} cannot be used: {why}; end who else has it open, or move it away") from None


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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


def swept(plan: StudyPlan, folder: Path, config: Config, url: str, progress: Progress) -> optuna.Study:
    """Runs what is left of a study, which the daemon at `url`, where one is named, shows; raises as `sweep`."""
    if not url:
        return sweep(plan, folder, progress, partial(Trial, plan, folder))
    with closing(client_of(config, url)) as client:
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
