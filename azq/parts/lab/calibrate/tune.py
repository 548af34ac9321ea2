"""`azq tune` as a whole: settings as `azq up` takes them, a course of trials on this machine, and the faster choice as a settings file."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from azq.config import Config, RunSections
from azq.config.loading import merge, to_toml
from azq.console.up import UpRequest, read_start
from azq.errors import ConfigError, EvaluationTimeout
from azq.files import publish_file
from azq.host.devices import DevicePlan, Wishes, detect, plan
from azq.parts.lab.bench.rig import Rig, changed, rig, rules
from azq.parts.lab.bench.selfplay import played
from azq.parts.lab.calibrate.course import Arrangement, CoursePlan, Performed, TrialJudge, TunedChoice, axes_of, course, leaves_axis
from azq.parts.lab.calibrate.estimate import setting_of
from azq.parts.lab.calibrate.measure import GameSize, WorkMoment, game_size, needs_of, train_alone
from azq.parts.lab.calibrate.rates import SampleReuse, fits
from azq.parts.lab.calibrate.tuned import TuneReport, progress
from azq.process.proc import usable_cores, usable_memory_bytes

WARM_UP_SHARE = 0.25  # of a trial: processes begin, and the first games leave the position that all begin with


def perform(machine: Rig, evaluator: str, arrangement: Arrangement, seconds: float) -> Performed | None:
    """So many seconds of self-play, the warm-up among them; None where they are too few to say anything."""
    sections = arranged(machine.sections, arrangement)
    warm_up_s = WARM_UP_SHARE * seconds
    try:
        done, spent_s, _ = played(replace(machine, sections=sections), evaluator, seconds - warm_up_s, arrangement.processes, warm_up_s)
    except EvaluationTimeout:
        return None
    if not done["simulations"] or not spent_s:
        return None
    wall_s, simulations = done["wall_s"], done["simulations"]
    return Performed(
        simulations_per_s=simulations / wall_s,
        cpu_s=spent_s / simulations,
        evaluations_per_s=done["evaluations"] / wall_s,
        mean_batch=done["evaluations"] / max(1.0, done["requests"]),
        open_games=done["open_games"],
    )


def arranged(sections: RunSections, arrangement: Arrangement) -> RunSections:
    """The settings with an arrangement in place of their own."""
    return changed(sections, **arrangement.sections())


Changes = Mapping[str, Mapping[str, Any]]


def write_new(path: Path, changes: Changes, about: str) -> None:
    """Writes a file of these settings alone, which begins with what it is. Whole or not at all; raises `ConfigError`."""
    _publish(path, f"# {about}\n{to_toml(changes)}")


def update(path: Path, changes: Changes) -> None:
    """Puts these settings into a file. Whole or not at all; raises `ConfigError` where it cannot be read, changed or written."""
    _publish(path, with_values(_read(path), changes, path))


def check_writable(new: Path | None, old: Path | None) -> None:
    """Raises `ConfigError` for files that could not be written at the end of a long measurement."""
    if old is not None:
        with_values(_read(old), {}, old)
    folder = new.absolute().parent if new else None
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"there is no folder {folder} for {new}; make it, or name another file")


def with_values(text: str, changes: Changes, source: object = "settings") -> str:
    """The text with these values of its sections in place, and all else as it was. Raises `ConfigError` where lines alone cannot do it."""
    old = _parsed(text, source)
    lines = text.splitlines()
    for section, values in changes.items():
        for key, value in values.items():
            lines = _with_value(lines, section, key, to_toml({key: value}).strip())
    new = "\n".join(lines) + "\n"
    if not _says(new, merge(old, changes)):
        names = ", ".join(f"{section}.{key}" for section, values in changes.items() for key in values)
        raise ConfigError(f"{source} is written in a way that azq does not edit; set {names} there by hand, or use --out")
    return new


def _with_value(lines: list[str], section: str, key: str, line: str) -> list[str]:
    """Lines with one line changed, or added at the begin of its section, which is added at the end where there is none."""
    header = re.compile(rf"\s*\[\s*{section}\s*\]\s*(#.*)?")
    begin = next((number for number, each in enumerate(lines) if header.fullmatch(each)), None)
    if begin is None:
        return [*lines, *([""] if lines else []), f"[{section}]", line]
    end = next((number for number in range(begin + 1, len(lines)) if lines[number].lstrip().startswith("[")), len(lines))
    for number in range(begin + 1, end):
        if found := re.fullmatch(rf"(\s*){key}\s*=[^#\"']*?(\s*#.*)?", lines[number]):
            return [*lines[:number], f"{found[1]}{line}{found[2] or ''}", *lines[number + 1 :]]
    return [*lines[: begin + 1], line, *lines[begin + 1 :]]


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _parsed(text: str, source: object) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not readable TOML: {error}; mend the file") from None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; name a settings file that is there, or use --out") from None


def _publish(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    try:
        publish_file(path, text.encode(), mode)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; name another file") from None


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
