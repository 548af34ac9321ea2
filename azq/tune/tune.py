"""`azq tune` as a whole: settings as `azq up` takes them, a course of trials on this machine, and the faster choice as a settings file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from azq.bench.rig import Rig, changed, rig, rules
from azq.config import Config, RunSections
from azq.console.up import UpRequest, read_start
from azq.errors import ConfigError, EvaluationTimeout
from azq.estimate.estimate import setting_of
from azq.estimate.lengths import GameSize, game_size
from azq.estimate.measure import WorkMoment, needs_of
from azq.estimate.memory import fits
from azq.estimate.rates import SampleReuse
from azq.estimate.training import train_alone
from azq.host.devices import DevicePlan, Wishes, plan
from azq.host.hardware import detect
from azq.process.proc import usable_cores, usable_memory_bytes
from azq.tune.arrangement import Arrangement, axes_of, leaves_axis
from azq.tune.course import CoursePlan, Performed, TrialJudge, TunedChoice, course
from azq.tune.measure import arranged, perform
from azq.tune.told import TuneReport, progress
from azq.tune.written import check_writable, update, write_new

LENGTHS_SHARE, LEARNER_SHARE = 0.03, 0.05  # of the time
SHORTEST_TRIAL_S = 1.5  # self-play tells of itself twice a second
EVERY_GAME = 10**9  # that may wait for a learner, where there is none


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """What the command line asked for."""

    game: str | None = None
    preset: str = ""
    overrides: Sequence[str] = ()
    config_file: Path | None = None
    seconds: float = 360.0
    evaluator: str = ""
    leaves: bool = False  # more of a step may be taken
    longer: float = 2.0
    shared: bool = False
    out: Path | None = None
    update: Path | None = None


def tune(asked: TuneRequest, say: Callable[[str], None]) -> TuneReport:
    """Measures, chooses, writes; nothing is written where nothing is faster, or Ctrl-C ended it.

    Raises `ConfigError` for a file that cannot be written, before anything is measured.
    """
    check_writable(asked.out, asked.update)
    run = f"tune-{os.getpid()}"  # that no folder has
    file = asked.config_file or asked.update  # what is changed is what is compared with
    config = read_start(UpRequest(asked.game, run, asked.overrides, None, file, asked.preset)).config
    evaluator = _evaluator(asked, config)
    config = changed(config, selfplay={"evaluator": evaluator}, worker={"evaluator": evaluator})
    report = _measured(asked, config, say)
    if report.changes and (asked.out or asked.update):
        if asked.update:
            update(asked.update, report.changes)
        else:
            assert asked.out is not None
            write_new(asked.out, report.changes, f"{report.game} on {usable_cores()} cores, {report.setting}: as `azq tune` measured it")
    return report


def _evaluator(asked: TuneRequest, config: Config) -> str:
    chosen = asked.evaluator or plan(detect(), Wishes.of(config)).evaluator
    if chosen not in ("stream", "local"):
        raise ConfigError(f"--evaluator {chosen!r} is neither stream nor local; name one of the two")
    return chosen


def _measured(asked: TuneRequest, config: Config, say: Callable[[str], None]) -> TuneReport:
    sections, devices = config.run_sections(), plan(detect(), Wishes.of(config))
    start = Arrangement.of(sections, devices.processes)
    size = game_size(sections, LENGTHS_SHARE * asked.seconds)
    course_plan, judge = _course_plan(asked, sections, devices, size), _judge(asked, sections, devices, size, say)
    of = course_plan.trials(start)
    each_s = max(SHORTEST_TRIAL_S, (1 - LENGTHS_SHARE - LEARNER_SHARE) * asked.seconds / of)
    trials: list[tuple[Arrangement, Performed | None]] = []
    began = WorkMoment.now()
    say(f"about {of} trials of {each_s:.1f} s; as it is set: {start}")
    tuned: TunedChoice | None = None
    try:
        with _rig(config, sections) as machine:
            tuned = _follow(machine, start, course_plan, judge, each_s, trials, say)
    except KeyboardInterrupt:
        say("interrupted")
    evaluator = sections.selfplay.evaluator
    return TuneReport(
        sections.run.game, setting_of(sections, asked.preset), evaluator, judge, trials, start, tuned, began.others(WorkMoment.now())
    )


@contextmanager
def _rig(config: Config, sections: RunSections) -> Iterator[Rig]:
    """One set of processes for all trials; no game waits for a learner."""
    sections = changed(sections, selfplay={"max_waiting_games": EVERY_GAME})
    with rig(config, sections, inference=sections.selfplay.evaluator == "stream") as machine:
        yield machine


def _follow(
    machine: Rig,
    start: Arrangement,
    course_plan: CoursePlan,
    judge: TrialJudge,
    each_s: float,
    trials: list[tuple[Arrangement, Performed | None]],
    say: Callable[[str], None],
) -> TunedChoice:
    """Measures what the course asks for until it knows; `trials` has all figures at any moment."""
    evaluator, of = machine.sections.selfplay.evaluator, course_plan.trials(start)
    perform(machine, evaluator, start, each_s)  # whatever is slow once, and games away from their first position
    walk = course(start, course_plan, judge)
    asked = next(walk)
    while True:
        found = perform(machine, evaluator, asked, each_s)
        trials.append((asked, found))
        if [found for arrangement, found in trials if arrangement == start] == [None, None]:
            raise EvaluationTimeout(f"as it is set, self-play is too slow for trials of {each_s:.1f} s; give more --seconds")
        say(progress(len(trials), of, asked, found, judge))
        try:
            asked = walk.send(found)
        except StopIteration as end:
            tuned: TunedChoice = end.value
            return tuned


def _course_plan(asked: TuneRequest, sections: RunSections, devices: DevicePlan, size: GameSize | None) -> CoursePlan:
    axes = axes_of(usable_cores())
    leaves = () if rules(sections).is_hidden() else (leaves_axis(sections.search.num_simulations),)
    usable = usable_memory_bytes()

    def roomy(arrangement: Arrangement) -> bool:
        needs = needs_of(arranged(sections, arrangement), replace(devices, processes=arrangement.processes), size)
        return fits(needs, usable)

    return CoursePlan(axes + (leaves if asked.leaves else ()), () if asked.leaves else leaves, fits=roomy)


def _judge(asked: TuneRequest, sections: RunSections, devices: DevicePlan, size: GameSize | None, say: Callable[[str], None]) -> TrialJudge:
    say(f"trains for {LEARNER_SHARE * asked.seconds:.0f} s, for what learning takes of this machine")
    return TrialJudge(
        cores=usable_cores(),
        learner=train_alone(sections, LEARNER_SHARE * asked.seconds),
        reuse=SampleReuse(sections.learner.samples_per_insert, sections.learner.batch_size),
        simulations=size.simulations / size.samples if size else float(sections.search.num_simulations),
        game_simulations=size.simulations if size else None,
        longer=asked.longer,
        one_device=bool(set(devices.inference) & set(devices.training) - {"cpu"}),
        shared=asked.shared,
    )
