"""`azq sweep`: Optuna proposes settings, a run trains with each; finished trials stay finished."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import DatabaseError

from azq.errors import NotFound, StateConflict, StoreError
from azq.files import locked
from azq.host.rundir import make_folder
from azq.parts.lab.sweep.plan import Choices, Range, StudyPlan, measured
from azq.parts.lab.sweep.trial import Trial, TrialFailed
from azq.status.results import Scalar

DATABASE = "study.db"
SPACE = "space"  # the attribute that says what the study was begun with
FIRST_TRIALS = 4  # before any is pruned
STEPS_PER_PROGRESS = 1000  # a trial's progress in thousandths: where trials are compared
DONE = (TrialState.COMPLETE, TrialState.PRUNED)

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
