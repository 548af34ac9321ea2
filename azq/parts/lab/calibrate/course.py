"""Which arrangement is measured next, and which one is taken: coordinate descent, then a test on fresh figures. Pure.

Machines drift and others work on them, so only figures of the same round are compared, and rounds are run forwards and backwards. What is
best of several is so by luck in part; therefore the winner is measured again against what was set, and taken if that test says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from azq.config import RunSections
from azq.parts.lab.calibrate.rates import HOUR_S, SampleReuse, Side, TwoSides, rates
from azq.stats import chance_of_sum

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
MOST_LAYOUTS = 6  # of processes and threads, those nearest to what is set
MOST = 2**20  # of games, as the settings have it
MOST_GROUPS = 4  # that are worth a look where fewer are set

#: the setting that each part of an arrangement is
SETTINGS: Mapping[str, tuple[str, str]] = {
    "processes": ("worker", "concurrency"),
    "threads": ("selfplay", "threads"),
    "games": ("selfplay", "games_in_flight"),
    "within_ms": ("selfplay", "answer_within_ms"),
    "groups": ("selfplay", "groups"),
    "leaves": ("search", "leaves_per_step"),
}


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One way: so many processes of so many threads, each with so many games in so many groups, and leaves of a tree in a step."""

    processes: int
    threads: int
    games: int  # at most, of one process
    within_ms: float  # that an evaluation may take before games become fewer; 0: they never do
    groups: int
    leaves: int

    @staticmethod
    def of(sections: RunSections, processes: int) -> Arrangement:
        selfplay = sections.selfplay
        games, within_ms = selfplay.games_in_flight, selfplay.answer_within_ms
        return Arrangement(processes, selfplay.threads, games, within_ms, selfplay.groups, sections.search.leaves_per_step)

    def sections(self) -> dict[str, dict[str, Any]]:
        """The settings of a run that make it so."""
        return {name: values for name, values in self.changes(None).items() if name in RunSections.model_fields}

    def changes(self, before: Arrangement | None) -> dict[str, dict[str, Any]]:
        """The settings that differ from those of `before`; all of them without it."""
        changes: dict[str, dict[str, Any]] = {}
        old = asdict(before) if before else {}
        for name, value in asdict(self).items():
            if name not in old or old[name] != value:
                section, key = SETTINGS[name]
                changes.setdefault(section, {})[key] = value
        return changes

    def cells(self) -> tuple[object, ...]:
        """As a row of a table: processes and threads, games, groups, leaves."""
        games = f"{self.games}" + (f", {self.within_ms:g}" if self.within_ms else "")
        return f"{self.processes} x {self.threads}", games, self.groups, self.leaves

    def __str__(self) -> str:
        games = f"{self.games} games" + (f" within {self.within_ms:g} ms" if self.within_ms else "")
        return f"{self.processes} x {self.threads} threads, {games}, {self.groups} groups, {self.leaves} leaves"


@dataclass(frozen=True, slots=True)
class Axis:
    """What is varied at once, everything else left as it is."""

    name: str
    others: Callable[[Arrangement], Sequence[Arrangement]]


def axes_of(cores: int) -> tuple[Axis, ...]:
    """Those that change nothing of what is searched, in the order in which they are looked at."""
    return Axis("processes and threads", lambda now: layouts(now, cores)), Axis("games at once", games_at_once), Axis("groups", groups)


def leaves_axis(num_simulations: int) -> Axis:
    """Leaves of a tree in a step, which change what is searched."""
    return Axis("leaves a step", lambda now: [replace(now, leaves=count) for count in _around(now.leaves, num_simulations)])


def layouts(now: Arrangement, cores: int) -> list[Arrangement]:
    """Other processes and threads that the cores bear, the nearest ones."""
    room = max(cores, now.processes * now.threads)
    near = {
        (processes, threads)
        for processes in {1, *_around(now.processes, room), now.processes}
        for threads in {1, *_around(now.threads, room), now.threads}
        if processes * threads <= room
    }
    near -= {(now.processes, now.threads)}

    def distance(layout: tuple[int, int]) -> tuple[float, tuple[int, int]]:
        processes, threads = layout
        return abs(math.log2(processes / now.processes)) + abs(math.log2(threads / now.threads)), layout

    return [replace(now, processes=processes, threads=threads) for processes, threads in sorted(near, key=distance)[:MOST_LAYOUTS]]


def games_at_once(now: Arrangement) -> list[Arrangement]:
    """Fewer and more of them: by the time that an evaluation may take where that decides, else by their number."""
    if now.within_ms:
        return [replace(now, within_ms=value) for value in (now.within_ms / 2, 2 * now.within_ms, 4 * now.within_ms, 0.0)]
    return [replace(now, games=count) for count in _around(now.games, MOST)]


def groups(now: Arrangement) -> list[Arrangement]:
    near = {*range(1, MOST_GROUPS), now.groups - 1, now.groups + 1} - {0, now.groups}
    return [replace(now, groups=count) for count in sorted(near) if count <= now.games]


def _around(value: int, most: int) -> Iterator[int]:
    """Values a quarter to four times as large, other than itself."""
    near = {round(factor * value) for factor in FACTORS} - {value}
    return (other for other in sorted(near) if 1 <= other <= most)


ALPHA = 0.025  # how often noise alone may change something, at most
WORTH = math.log(1.02)  # what is not faster by as much does not become the best of its axis


class Performance(NamedTuple):
    """What self-play did for some seconds in one arrangement."""

    simulations_per_s: float
    cpu_s: float  # of a simulation, of all processes
    evaluations_per_s: float
    mean_batch: float
    open_games: float  # in all processes


Course = Generator[Arrangement, Performance | None, "TunedChoice"]  # it is sent None where an arrangement cannot be measured


@dataclass(frozen=True, slots=True)
class TrialJudge:
    """What a figure is worth: samples of the whole run, learner included."""

    cores: int
    learner: Side
    reuse: SampleReuse
    simulations: float  # of a sample
    game_simulations: float | None  # of a game; None: unknown
    longer: float  # times as long as now that a game may take
    one_device: bool = False
    shared: bool = False  # others work on the machine: only CPU-seconds count, which they move least

    def samples_per_s(self, trial: Performance) -> float:
        """Of self-play with the machine to itself."""
        return trial.simulations_per_s / self.simulations

    def samples_per_cpu_s(self, trial: Performance) -> float:
        return 1 / (trial.cpu_s * self.simulations)

    def score(self, trial: Performance) -> float:
        """Samples per second of the run, whose learner takes its share of the same cores; on a shared machine a CPU-second of self-play."""
        if self.shared:
            return self.samples_per_cpu_s(trial)
        side = Side(self.samples_per_s(trial), trial.cpu_s * self.simulations)
        return rates(TwoSides(self.cores, side, self.learner, 0.0, 0.0, None, None, self.one_device), self.reuse).samples / HOUR_S

    def game_s(self, trial: Performance) -> float | None:
        """From a game's begin to its end (Little's law)."""
        return trial.open_games * self.game_simulations / trial.simulations_per_s if self.game_simulations else None

    def too_long(self, trials: Sequence[Performance | None], before: Sequence[Performance | None]) -> bool:
        """Whether games would take far longer than they do: they would end, and teach, late."""
        new, old = ([seconds for trial in side if trial and (seconds := self.game_s(trial)) is not None] for side in (trials, before))
        return bool(new and old) and fmean(new) > self.longer * fmean(old)


@dataclass(frozen=True, slots=True)
class CoursePlan:
    """What is varied, how often each is measured, and what may be measured at all."""

    axes: Sequence[Axis]
    rounds: int = 2
    confirmations: int = 8
    fits: Callable[[Arrangement], bool] = lambda arrangement: True  # into memory

    def trials(self, start: Arrangement) -> int:
        """About as many as there will be."""
        counts = (1 + sum(map(self.fits, axis.others(start))) for axis in self.axes)
        return 2 * self.confirmations + self.rounds * sum(counts)


@dataclass(frozen=True, slots=True)
class AxisResult:
    """One axis: the run's samples per second of each arrangement as a ratio to those of what was set."""

    name: str
    best: Arrangement  # before it was varied
    ratios: Mapping[Arrangement, float]
    too_long: frozenset[Arrangement] = frozenset()


@dataclass(frozen=True, slots=True)
class TunedChoice:
    """What came of it."""

    start: Arrangement
    chosen: Arrangement  # what was set, where nothing was faster by more than noise
    axes: Sequence[AxisResult]
    candidate: Arrangement  # what the test was of
    ratio: float  # of it to what was set, in the test
    p: float  # that noise alone looks as good
    too_long: bool = False  # it would have been taken, but for games that take far longer

    @property
    def changes_nothing(self) -> bool:
        return self.chosen == self.start


def course(start: Arrangement, plan: CoursePlan, judge: TrialJudge) -> Course:
    """Yields what to measure, is sent what was measured, and returns what to take."""
    best, base, results = start, 1.0, []
    for axis in plan.axes:
        result = yield from _axis(axis, best, base, plan, judge)
        results.append(result)
        faster = {arrangement: ratio for arrangement, ratio in result.ratios.items() if arrangement not in result.too_long}
        winner = max(faster, key=lambda arrangement: faster[arrangement], default=best)
        if winner != best and math.log(faster[winner] / base) > WORTH:
            best, base = winner, faster[winner]
    ratio, p, too_long = 1.0, 1.0, False
    if best != start:
        figures = yield from _rounds([start, best], plan.confirmations)
        if logs := _logs(figures[best], figures[start], judge):
            ratio, p = math.exp(fmean(logs)), chance_of_sum(logs)
            too_long = judge.too_long(figures[best], figures[start])
    chosen = best if p <= ALPHA and not too_long else start
    return TunedChoice(start, chosen, results, best, ratio, p, too_long and p <= ALPHA)


def turns(options: Sequence[Arrangement], number: int) -> list[Arrangement]:
    """The order of a round: every other one backwards, and each two begin one further; of two options ABBA, then BAAB."""
    begin = number // 2 % len(options)
    turned = [*options[begin:], *options[:begin]]
    return turned[::-1] if number % 2 else turned


def _axis(
    axis: Axis, best: Arrangement, base: float, plan: CoursePlan, judge: TrialJudge
) -> Generator[Arrangement, Performance | None, AxisResult]:
    options = [best, *filter(plan.fits, axis.others(best))]
    figures = yield from _rounds(options, plan.rounds if len(options) > 1 else 0)
    logs = {option: _logs(trials, figures[best], judge) for option, trials in figures.items()}
    ratios = {option: base * math.exp(fmean(pairs)) for option, pairs in logs.items() if pairs}
    return AxisResult(axis.name, best, ratios, frozenset(option for option in ratios if judge.too_long(figures[option], figures[best])))


Figures = dict[Arrangement, list[Performance | None]]


def _rounds(options: Sequence[Arrangement], rounds: int) -> Generator[Arrangement, Performance | None, Figures]:
    """Figures of each round in order, None where there were none: what a machine at other work stood still for is tried in the next."""
    figures: Figures = {option: [] for option in options}
    for number in range(rounds):
        for option in turns(options, number):
            trial = yield option
            figures[option].append(trial)
    return figures


def _logs(ours: Sequence[Performance | None], theirs: Sequence[Performance | None], judge: TrialJudge) -> list[float]:
    """Of ratios, round by round, where both were measured."""
    pairs = zip(ours, theirs, strict=True)
    return [math.log(judge.score(our) / judge.score(their)) for our, their in pairs if our and their]
