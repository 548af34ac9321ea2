"""`azq tune`: settings as `azq up` takes them, a course of trials on this machine, and the faster choice as a settings file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from azq.config import Config, RunSections
from azq.config.loading import to_toml
from azq.console.table import tabled
from azq.console.up import UpRequest, read_start
from azq.errors import ConfigError, EvaluationTimeout
from azq.files import check_output, write_output
from azq.host.devices import DevicePlan, Wishes, detect, plan
from azq.parts.lab.bench.rig import Rig, changed, rig
from azq.parts.lab.bench.selfplay import played
from azq.parts.lab.calibrate.course import Arrangement, Performance, TrialJudge, TunedChoice, trials, tuned
from azq.parts.lab.calibrate.estimate import setting_of
from azq.parts.lab.calibrate.measure import GameSize, WorkMoment, game_size, needs_of, train_alone
from azq.parts.lab.calibrate.rates import SampleReuse, fits
from azq.process.proc import usable_cores, usable_memory_bytes

WARM_UP_SHARE = 0.25  # of a trial: processes begin, and the first games leave the position that all begin with
LENGTHS_SHARE, LEARNER_SHARE = 0.03, 0.05  # of the time
SHORTEST_TRIAL_S = 1.5  # self-play reports twice a second
EVERY_GAME = 10**9  # that may wait for a learner, where there is none

Progress = Callable[[str], None]
Trials = list[tuple[Arrangement, Performance | None]]  # None: too slow to be measured


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
        if (choice := self.tuned) is None:
            return values
        arrangements = [asdict(arrangement) | {"ratio": ratio} for arrangement, ratio in choice.ratios.items()]
        chosen, candidate = asdict(choice.chosen), asdict(choice.candidate)
        return values | {"chosen": chosen, "candidate": candidate, "ratio": choice.ratio, "p": choice.p, "arrangements": arrangements}

    def as_text(self) -> list[str]:
        """For people."""
        return [*self._table(), *(self._verdict(self.tuned) if self.tuned else ["interrupted: nothing is chosen, nothing written"])]

    def _figures(self, trial: Performance) -> dict[str, float]:
        judge = self.judge
        rates = {"samples_per_s": judge.samples_per_s(trial), "samples_per_cpu_s": judge.samples_per_cpu_s(trial)}
        return {**trial._asdict(), **rates, "run_samples_per_s": judge.score(trial)}

    def _table(self) -> list[str]:
        ratios = self.tuned.ratios if self.tuned else {}
        rows = []
        for arrangement in dict.fromkeys(arrangement for arrangement, _ in self.trials):
            figures = [self._figures(trial) for measured, trial in self.trials if measured == arrangement and trial]
            columns = ("samples_per_s", "samples_per_cpu_s", "run_samples_per_s")
            medians = [f"{median(row[name] for row in figures):,.1f}" for name in columns] if figures else ["too slow to tell", "-", "-"]
            ratio = f"{ratios[arrangement]:.2f}" if arrangement in ratios else "-"
            rows.append((*arrangement.cells(), *medians, len(figures), ratio))
        heads = ("processes x threads", "games, ms", "groups", "samples/s", "a CPU-second", "of the run", "trials", "ratio")
        return tabled(rows, *(f"#{head}" for head in heads))

    def _verdict(self, choice: TunedChoice) -> list[str]:
        lines = [
            f"samples/s: self-play alone; of the run: with a learner, {self.judge.learner.per_s:.1f} steps/s alone, on the same cores",
            "ratio: the run's samples to those as it is set, from the rounds of its axis; the test below has separate figures",
        ]
        if choice.candidate == choice.start:
            return [*lines, "nothing was faster than what is set; nothing to write"]
        refused = "; not taken: noise may look like this, or too few trials could be measured (--seconds)"
        why_not = "" if self.changes else refused
        return [*lines, f"{choice.candidate}: {choice.ratio:.2f} times the run's samples (p {choice.p:.3f}){why_not}"]


def tune(
    game: str,
    *,
    preset: str,
    overrides: Sequence[str],
    config_file: Path | None,
    seconds: float,
    evaluator: str,
    out: Path,
    progress: Progress,
) -> TuneReport:
    """Measures, chooses, writes; nothing is written where nothing is faster, or Ctrl-C ended it."""
    check_output(out)
    run = f"tune-{os.getpid()}"  # that no folder has
    config = read_start(UpRequest(game, run, overrides, None, config_file, preset)).config
    evaluator = evaluator or plan(detect(), Wishes.of(config)).evaluator
    if evaluator not in ("stream", "local"):
        raise ConfigError(f"--evaluator {evaluator!r} is neither stream nor local; name one of the two")
    config = changed(config, selfplay={"evaluator": evaluator}, worker={"evaluator": evaluator})
    report = _measured(config, setting_of(config.run_sections(), preset), seconds, progress)
    if report.changes:
        write(out, report.changes, f"{report.game} on {usable_cores()} cores, {report.setting}: as `azq tune` measured it")
    return report


def write(path: Path, changes: Mapping[str, Mapping[str, Any]], comment: str) -> None:
    """Writes a file of these settings alone. Raises `StoreError`."""
    write_output(path, f"# {comment}\n{to_toml(changes)}".encode())


def _measured(config: Config, setting: str, seconds: float, progress: Progress) -> TuneReport:
    sections, devices = config.run_sections(), plan(detect(), Wishes.of(config))
    start, evaluator = Arrangement.of(sections, devices.processes), sections.selfplay.evaluator
    size, began = game_size(sections, LENGTHS_SHARE * seconds), WorkMoment.now()
    judge, fitting = _judge(sections, devices, size, LEARNER_SHARE * seconds, progress), partial(_fits, sections, devices, size)
    course, choice = TrialSeries(start, judge, trials(start, judge.cores, fitting), seconds, progress), None
    unlimited = changed(sections, selfplay={"max_waiting_games": EVERY_GAME})
    try:
        with rig(config, unlimited, inference=evaluator == "stream") as machine:
            perform(machine, start, course.trial_s)  # whatever is slow once, and games away from their first position
            choice = tuned(start, judge, partial(course.trial, machine), fitting)
    except KeyboardInterrupt:
        progress("interrupted")
    return TuneReport(sections.run.game, setting, evaluator, judge, course.trials, start, choice, began.others(WorkMoment.now()))


def _fits(sections: RunSections, devices: DevicePlan, size: GameSize | None, arrangement: Arrangement) -> bool:
    """Whether an arrangement fits into memory."""
    wanted = changed(sections, selfplay=arrangement.selfplay())
    return fits(needs_of(wanted, replace(devices, processes=arrangement.processes), size), usable_memory_bytes())


def _judge(sections: RunSections, devices: DevicePlan, size: GameSize | None, seconds: float, progress: Progress) -> TrialJudge:
    progress(f"trains for {seconds:.0f} s, for what learning takes of this machine")
    return TrialJudge(
        cores=usable_cores(),
        learner=train_alone(sections, seconds),
        reuse=SampleReuse(sections.learner.samples_per_insert, sections.learner.batch_size),
        simulations=size.simulations / size.samples if size else float(sections.search.num_simulations),
        one_device=bool(set(devices.inference) & set(devices.training) - {"cpu"}),
    )


class TrialSeries:
    """The trials of one course, all of them at any moment, a line each."""

    def __init__(self, start: Arrangement, judge: TrialJudge, of: int, seconds: float, progress: Progress) -> None:
        self.trials: Trials = []
        self.trial_s = max(SHORTEST_TRIAL_S, (1 - LENGTHS_SHARE - LEARNER_SHARE) * seconds / of)
        self._start, self._judge, self._of, self._progress = start, judge, of, progress
        progress(f"about {of} trials of {self.trial_s:.1f} s; as it is set: {start}")

    def trial(self, machine: Rig, arrangement: Arrangement) -> Performance | None:
        """Raises `EvaluationTimeout` where what is set cannot be measured, twice."""
        trial, judge, rates = perform(machine, arrangement, self.trial_s), self._judge, "too slow to tell"
        self.trials.append((arrangement, trial))
        if [trial for measured, trial in self.trials if measured == self._start] == [None, None]:
            raise EvaluationTimeout(f"as it is set, self-play is too slow for trials of {self.trial_s:.1f} s; give more --seconds")
        if trial:
            rates = f"{judge.samples_per_s(trial):,.0f} samples/s, {judge.samples_per_cpu_s(trial):,.0f} a CPU-second"
        self._progress(f"{len(self.trials)} of about {self._of}: {arrangement}: {rates}")
        return trial


def perform(machine: Rig, arrangement: Arrangement, seconds: float) -> Performance | None:
    """So many seconds of self-play, the warm-up among them; None where they are too few to measure anything."""
    there = replace(machine, sections=changed(machine.sections, selfplay=arrangement.selfplay()))
    warm_up_s, evaluator = WARM_UP_SHARE * seconds, machine.sections.selfplay.evaluator
    try:
        done, spent_s, _ = played(there, evaluator, seconds - warm_up_s, arrangement.processes, warm_up_s)
    except EvaluationTimeout:
        return None
    if not done["simulations"] or not spent_s:
        return None
    return Performance(done["simulations"] / done["wall_s"], spent_s / done["simulations"])
