"""`azq tune`: settings as `azq up` takes them, a course of trials on this machine, and the faster choice as a settings file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from azq.config import Config, RunSections
from azq.config.loading import to_toml
from azq.console.table import tabled
from azq.console.up import UpRequest, read_start
from azq.errors import ConfigError, EvaluationTimeout
from azq.files import publish_file
from azq.host.devices import DevicePlan, Wishes, detect, plan
from azq.parts.lab.bench.rig import Rig, changed, rig, rules
from azq.parts.lab.bench.selfplay import played
from azq.parts.lab.calibrate.course import (
    Arrangement,
    AxisResult,
    CoursePlan,
    Performance,
    TrialJudge,
    TunedChoice,
    axes_of,
    course,
    leaves_axis,
)
from azq.parts.lab.calibrate.estimate import setting_of
from azq.parts.lab.calibrate.measure import GameSize, WorkMoment, game_size, needs_of, train_alone
from azq.parts.lab.calibrate.rates import SampleReuse, fits
from azq.process.proc import usable_cores, usable_memory_bytes

WARM_UP_SHARE = 0.25  # of a trial: processes begin, and the first games leave the position that all begin with
LENGTHS_SHARE, LEARNER_SHARE = 0.03, 0.05  # of the time
SHORTEST_TRIAL_S = 1.5  # self-play reports twice a second
EVERY_GAME = 10**9  # that may wait for a learner, where there is none

Progress = Callable[[str], None]
Trials = Sequence[tuple[Arrangement, Performance | None]]  # None: too slow to be measured


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """The command line's arguments."""

    game: str
    preset: str
    overrides: Sequence[str]
    config_file: Path | None
    seconds: float
    evaluator: str
    leaves: bool  # more of a step may be taken
    longer: float
    shared: bool
    out: Path


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What `azq tune` measured and chose."""

    game: str
    setting: str
    evaluator: str
    judge: TrialJudge
    trials: Trials
    start: Arrangement
    tuned: TunedChoice | None  # None: interrupted
    others_cores: float | None = None  # that other programs took; None: unknown

    @property
    def changes(self) -> dict[str, dict[str, Any]]:
        """The settings to write; none where those that are set stay."""
        return self.tuned.chosen.changes(self.start) if self.tuned else {}

    def values(self) -> dict[str, Any]:
        """For JSON."""
        values = {
            "game": self.game,
            "setting": self.setting,
            "evaluator": self.evaluator,
            "interrupted": self.tuned is None,
            "start": asdict(self.start),
            "changes": self.changes,
            "others_cores": self.others_cores,
            "learner": asdict(self.judge.learner),
            "trials": [asdict(arrangement) | (self._figures(trial) if trial else {}) for arrangement, trial in self.trials],
        }
        if (tuned := self.tuned) is None:
            return values
        axes = [_axis_values(axis) for axis in tuned.axes]
        return values | {
            "chosen": asdict(tuned.chosen),
            "candidate": asdict(tuned.candidate),
            "ratio": tuned.ratio,
            "p": tuned.p,
            "axes": axes,
        }

    def as_text(self) -> list[str]:
        """For people."""
        return [*self._table(), *(self._verdict(self.tuned) if self.tuned else ["interrupted: nothing is chosen, nothing written"])]

    def _figures(self, trial: Performance) -> dict[str, float | None]:
        judge = self.judge
        rates = {"samples_per_s": judge.samples_per_s(trial), "samples_per_cpu_s": judge.samples_per_cpu_s(trial)}
        return {**trial._asdict(), **rates, "run_samples_per_s": judge.score(trial), "game_s": judge.game_s(trial)}

    def _table(self) -> list[str]:
        axes = self.tuned.axes if self.tuned else ()
        ratios = {arrangement: ratio for axis in reversed(axes) for arrangement, ratio in axis.ratios.items()}
        rows = []
        for arrangement in dict.fromkeys(arrangement for arrangement, _ in self.trials):
            trials = [trial for measured, trial in self.trials if measured == arrangement and trial]
            ratio = f"{ratios[arrangement]:.2f}" if arrangement in ratios else "-"
            rows.append((*arrangement.cells(), *self._medians(trials), len(trials), ratio))
        heads = ("processes x threads", "games, ms", "groups", "leaves", "samples/s", "a CPU-second", "of the run", "a game, s", "trials")
        return tabled(rows, *(f"#{head}" for head in (*heads, "ratio")))

    def _medians(self, trials: Sequence[Performance]) -> tuple[str, ...]:
        if not trials:
            return ("too slow to tell", "-", "-", "-")
        figures = [self._figures(trial) for trial in trials]
        columns = [[row[name] for row in figures] for name in ("samples_per_s", "samples_per_cpu_s", "run_samples_per_s", "game_s")]
        return tuple("-" if None in column else f"{median(filter(None, column)):,.1f}" for column in columns)

    def _verdict(self, tuned: TunedChoice) -> list[str]:
        unit = "the samples of a CPU-second" if self.judge.shared else "the run's samples"
        lines = [
            f"samples/s: self-play alone; of the run: with a learner, {self.judge.learner.per_s:.1f} steps/s alone, on the same cores",
            f"ratio: {unit} to those as it is set, from the rounds of its axis; the test below has separate figures",
        ]
        if tuned.candidate == tuned.start:
            return [*lines, "nothing was faster than what is set; nothing to write"]
        return [*lines, f"{tuned.candidate}: {tuned.ratio:.2f} times {unit} (p {tuned.p:.3f}){self._why_not(tuned)}"]

    def _why_not(self, tuned: TunedChoice) -> str:
        if not tuned.changes_nothing:
            return ""
        if tuned.too_long:
            return f"; not taken: games would take more than {self.judge.longer:g} times as long (--longer)"
        return "; not taken: noise may look like this, or too few trials could be measured (--seconds)"


def _axis_values(axis: AxisResult) -> dict[str, Any]:
    rows = [asdict(arrangement) | {"ratio": ratio, "too_long": arrangement in axis.too_long} for arrangement, ratio in axis.ratios.items()]
    return {"name": axis.name, "may_be_taken": True, "arrangements": rows}


def trial_line(number: int, of: int, arrangement: Arrangement, trial: Performance | None, judge: TrialJudge) -> str:
    """A trial in a line."""
    rates = (
        f"{judge.samples_per_s(trial):,.0f} samples/s, {judge.samples_per_cpu_s(trial):,.0f} a CPU-second" if trial else "too slow to tell"
    )
    return f"{number} of about {of}: {arrangement}: {rates}"


def tune(request: TuneRequest, progress: Progress) -> TuneReport:
    """Measures, chooses, writes; nothing is written where nothing is faster, or Ctrl-C ended it.

    Raises `ConfigError` for a file that cannot be written, before anything is measured.
    """
    check_writable(request.out)
    run = f"tune-{os.getpid()}"  # that no folder has
    config = read_start(UpRequest(request.game, run, request.overrides, None, request.config_file, request.preset)).config
    evaluator = request.evaluator or plan(detect(), Wishes.of(config)).evaluator
    if evaluator not in ("stream", "local"):
        raise ConfigError(f"--evaluator {evaluator!r} is neither stream nor local; name one of the two")
    config = changed(config, selfplay={"evaluator": evaluator}, worker={"evaluator": evaluator})
    report = _measured(request, config, progress)
    if report.changes:
        write(request.out, report.changes, f"{report.game} on {usable_cores()} cores, {report.setting}: as `azq tune` measured it")
    return report


def check_writable(path: Path) -> None:
    """Raises `ConfigError` for a file that could not be written at the end of a long measurement."""
    if not (folder := path.absolute().parent).is_dir():
        raise ConfigError(f"there is no folder {folder} for {path}; make it, or name another file")


def write(path: Path, changes: Mapping[str, Mapping[str, Any]], comment: str) -> None:
    """Writes a file of these settings alone. Raises `ConfigError`."""
    try:
        publish_file(path, f"# {comment}\n{to_toml(changes)}".encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; name another file") from None


def perform(machine: Rig, evaluator: str, arrangement: Arrangement, seconds: float) -> Performance | None:
    """So many seconds of self-play, the warm-up among them; None where they are too few to measure anything."""
    sections = arranged(machine.sections, arrangement)
    warm_up_s = WARM_UP_SHARE * seconds
    try:
        done, spent_s, _ = played(replace(machine, sections=sections), evaluator, seconds - warm_up_s, arrangement.processes, warm_up_s)
    except EvaluationTimeout:
        return None
    if not done["simulations"] or not spent_s:
        return None
    wall_s, simulations = done["wall_s"], done["simulations"]
    return Performance(
        simulations_per_s=simulations / wall_s,
        cpu_s=spent_s / simulations,
        evaluations_per_s=done["evaluations"] / wall_s,
        mean_batch=done["evaluations"] / max(1.0, done["requests"]),
        open_games=done["open_games"],
    )


def arranged(sections: RunSections, arrangement: Arrangement) -> RunSections:
    """The settings with an arrangement in place of theirs."""
    return changed(sections, **arrangement.sections())


def _measured(request: TuneRequest, config: Config, progress: Progress) -> TuneReport:
    sections, devices = config.run_sections(), plan(detect(), Wishes.of(config))
    start = Arrangement.of(sections, devices.processes)
    size = game_size(sections, LENGTHS_SHARE * request.seconds)
    course_plan, judge = _course_plan(request, sections, devices, size), _judge(request, sections, devices, size, progress)
    of = course_plan.trials(start)
    trial_s = max(SHORTEST_TRIAL_S, (1 - LENGTHS_SHARE - LEARNER_SHARE) * request.seconds / of)
    trials: list[tuple[Arrangement, Performance | None]] = []
    began = WorkMoment.now()
    progress(f"about {of} trials of {trial_s:.1f} s; as it is set: {start}")
    tuned: TunedChoice | None = None
    evaluator = sections.selfplay.evaluator
    unlimited = changed(sections, selfplay={"max_waiting_games": EVERY_GAME})
    try:
        with rig(config, unlimited, inference=evaluator == "stream") as machine:
            tuned = _follow(machine, start, course_plan, judge, trial_s, trials, progress)
    except KeyboardInterrupt:
        progress("interrupted")
    others_cores = began.others(WorkMoment.now())
    return TuneReport(sections.run.game, setting_of(sections, request.preset), evaluator, judge, trials, start, tuned, others_cores)


def _follow(
    machine: Rig,
    start: Arrangement,
    course_plan: CoursePlan,
    judge: TrialJudge,
    trial_s: float,
    trials: list[tuple[Arrangement, Performance | None]],
    progress: Progress,
) -> TunedChoice:
    """Measures what the course yields until it has chosen; `trials` has all figures at any moment."""
    evaluator, of = machine.sections.selfplay.evaluator, course_plan.trials(start)
    perform(machine, evaluator, start, trial_s)  # whatever is slow once, and games away from their first position
    walk = course(start, course_plan, judge)
    arrangement = next(walk)
    while True:
        trial = perform(machine, evaluator, arrangement, trial_s)
        trials.append((arrangement, trial))
        if [trial for measured, trial in trials if measured == start] == [None, None]:
            raise EvaluationTimeout(f"as it is set, self-play is too slow for trials of {trial_s:.1f} s; give more --seconds")
        progress(trial_line(len(trials), of, arrangement, trial, judge))
        try:
            arrangement = walk.send(trial)
        except StopIteration as end:
            tuned: TunedChoice = end.value
            return tuned


def _course_plan(request: TuneRequest, sections: RunSections, devices: DevicePlan, size: GameSize | None) -> CoursePlan:
    axes = axes_of(usable_cores())
    if request.leaves and not rules(sections).is_hidden():
        axes = (*axes, leaves_axis(sections.search.num_simulations))
    usable = usable_memory_bytes()

    def fits_memory(arrangement: Arrangement) -> bool:
        needs = needs_of(arranged(sections, arrangement), replace(devices, processes=arrangement.processes), size)
        return fits(needs, usable)

    return CoursePlan(axes, fits=fits_memory)


def _judge(request: TuneRequest, sections: RunSections, devices: DevicePlan, size: GameSize | None, progress: Progress) -> TrialJudge:
    progress(f"trains for {LEARNER_SHARE * request.seconds:.0f} s, for what learning takes of this machine")
    return TrialJudge(
        cores=usable_cores(),
        learner=train_alone(sections, LEARNER_SHARE * request.seconds),
        reuse=SampleReuse(sections.learner.samples_per_insert, sections.learner.batch_size),
        simulations=size.simulations / size.samples if size else float(sections.search.num_simulations),
        game_simulations=size.simulations if size else None,
        longer=request.longer,
        one_device=bool(set(devices.inference) & set(devices.training) - {"cpu"}),
        shared=request.shared,
    )
