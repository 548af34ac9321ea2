"""Which arrangement is measured next, and which one is taken: one setting after the other, then a test on fresh figures. Pure.

Machines drift and others work on them, so only figures of the same round are compared, and rounds are run forwards and backwards. What is
best of several is so by luck in part; therefore the winner is measured again against what was set, and taken if that test says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from azq.config import RunSections
from azq.parts.lab.calibrate.rates import HOUR_S, SampleReuse, Side, TwoSides, rates
from azq.stats import chance_of_sum

FACTORS = (0.25, 0.5, 2.0, 4.0)  # of processes and threads
GAME_FACTORS = (0.25, 0.5, 2.0)  # with more of them a game would end, and teach, far later
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
}


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One way: so many processes of so many threads, each with so many games in so many groups."""

    processes: int
    threads: int
    games: int  # at most, of one process
    within_ms: float  # that an evaluation may take before games become fewer; 0: they never do
    groups: int

    @staticmethod
    def of(sections: RunSections, processes: int) -> Arrangement:
        selfplay = sections.selfplay
        return Arrangement(processes, selfplay.threads, selfplay.games_in_flight, selfplay.answer_within_ms, selfplay.groups)

    def selfplay(self) -> dict[str, Any]:
        """The settings of self-play that make it so."""
        return {SETTINGS[name][1]: value for name, value in asdict(self).items() if name != "processes"}

    def changes(self, before: Arrangement) -> dict[str, dict[str, Any]]:
        """The settings that differ from those of `before`, by section."""
        changes: dict[str, dict[str, Any]] = {}
        for name, old in asdict(before).items():
            if (value := getattr(self, name)) != old:
                section, key = SETTINGS[name]
                changes.setdefault(section, {})[key] = value
        return changes

    def cells(self) -> tuple[object, ...]:
        """As a row of a table: processes and threads, games, groups."""
        return f"{self.processes} x {self.threads}", f"{self.games}" + (f", {self.within_ms:g}" if self.within_ms else ""), self.groups

    def __str__(self) -> str:
        games = f"{self.games} games" + (f" within {self.within_ms:g} ms" if self.within_ms else "")
        return f"{self.processes} x {self.threads} threads, {games}, {self.groups} groups"


Axis = Callable[[Arrangement], Sequence[Arrangement]]  # what is varied at once, everything else left as it is


def axes_of(cores: int) -> tuple[Axis, ...]:
    """All of them, in the order in which they are looked at; none changes what is searched."""
    return partial(layouts, cores=cores), games_at_once, groups


def layouts(now: Arrangement, cores: int) -> list[Arrangement]:
    """Other processes and threads that the cores bear, the nearest ones."""
    room = max(cores, now.processes * now.threads)
    near = {
        (processes, threads)
        for processes in {1, now.processes, *_around(now.processes, FACTORS)}
        for threads in {1, now.threads, *_around(now.threads, FACTORS)}
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
        return [replace(now, within_ms=factor * now.within_ms) for factor in GAME_FACTORS]
    return [replace(now, games=count) for count in _around(now.games, GAME_FACTORS)]


def groups(now: Arrangement) -> list[Arrangement]:
    near = {*range(1, MOST_GROUPS), now.groups - 1, now.groups + 1} - {0, now.groups}
    return [replace(now, groups=count) for count in sorted(near) if count <= now.games]


def _around(value: int, factors: Sequence[float]) -> Iterator[int]:
    """Whole values so many times as large, other than itself."""
    return (other for other in sorted({round(factor * value) for factor in factors} - {value}) if 1 <= other <= MOST)


ALPHA = 0.025  # how often noise alone may change something, at most
WORTH = math.log(1.02)  # what is not faster by as much does not become the best of its axis
ROUNDS, CONFIRMATIONS = 2, 8  # of an axis, and of the test


class Performance(NamedTuple):
    """What self-play did for some seconds in one arrangement."""

    simulations_per_s: float
    cpu_s: float  # of a simulation, of all processes


Measure = Callable[[Arrangement], Performance | None]  # None where an arrangement cannot be measured


@dataclass(frozen=True, slots=True)
class TrialJudge:
    """What a figure is worth: samples of the whole run, learner included."""

    cores: int
    learner: Side
    reuse: SampleReuse
    simulations: float  # of a sample
    one_device: bool = False

    def samples_per_s(self, trial: Performance) -> float:
        """Of self-play with the machine to itself."""
        return trial.simulations_per_s / self.simulations

    def samples_per_cpu_s(self, trial: Performance) -> float:
        return 1 / (trial.cpu_s * self.simulations)

    def score(self, trial: Performance) -> float:
        """Samples per second of the run, whose learner takes its share of the same cores."""
        side = Side(self.samples_per_s(trial), trial.cpu_s * self.simulations)
        return rates(TwoSides(self.cores, side, self.learner, 0.0, 0.0, None, None, self.one_device), self.reuse).samples / HOUR_S


@dataclass(frozen=True, slots=True)
class TunedChoice:
    """What came of it."""

    start: Arrangement
    chosen: Arrangement  # what was set, where nothing was faster by more than noise
    ratios: Mapping[Arrangement, float]  # samples per second of the run to those of what was set, in the rounds of the first axis with it
    candidate: Arrangement  # what the test was of
    ratio: float = 1.0  # of it to what was set, in the test
    p: float = 1.0  # that noise alone looks as good


def trials(start: Arrangement, cores: int, fits: Callable[[Arrangement], bool]) -> int:
    """About as many as there will be."""
    return 2 * CONFIRMATIONS + ROUNDS * sum(1 + sum(map(fits, axis(start))) for axis in axes_of(cores))


def tuned(start: Arrangement, judge: TrialJudge, measure: Measure, fits: Callable[[Arrangement], bool]) -> TunedChoice:
    """Measures one axis after the other, each from the best so far, then the winner against what was set; what does not fit is left out."""
    best, base, ratios = start, 1.0, {start: 1.0}
    for axis in axes_of(judge.cores):
        options = [best, *filter(fits, axis(best))]
        if len(options) == 1:
            continue
        figures = _rounds(options, ROUNDS, measure)
        logs = {option: _logs(performances, figures[best], judge) for option, performances in figures.items()}
        near = {option: base * math.exp(fmean(pairs)) for option, pairs in logs.items() if pairs}
        winner = max(near, key=near.__getitem__, default=best)
        ratios = near | ratios
        if winner != best and math.log(near[winner] / base) > WORTH:
            best, base = winner, near[winner]
    if best == start:
        return TunedChoice(start, start, ratios, start)
    figures = _rounds([start, best], CONFIRMATIONS, measure)
    pairs = _logs(figures[best], figures[start], judge)
    ratio, p = (math.exp(fmean(pairs)), chance_of_sum(pairs)) if pairs else (1.0, 1.0)
    return TunedChoice(start, best if p <= ALPHA else start, ratios, best, ratio, p)


def turns(options: Sequence[Arrangement], number: int) -> list[Arrangement]:
    """The order of a round: every other one backwards, and each two begin one further; of two options ABBA, then BAAB."""
    begin = number // 2 % len(options)
    turned = [*options[begin:], *options[:begin]]
    return turned[::-1] if number % 2 else turned


def _rounds(options: Sequence[Arrangement], rounds: int, measure: Measure) -> dict[Arrangement, list[Performance | None]]:
    """Figures of each round in order, None where there were none: what a machine at other work stood still for is tried in the next."""
    figures: dict[Arrangement, list[Performance | None]] = {option: [] for option in options}
    for number in range(rounds):
        for option in turns(options, number):
            figures[option].append(measure(option))
    return figures


def _logs(ours: Sequence[Performance | None], theirs: Sequence[Performance | None], judge: TrialJudge) -> list[float]:
    """Of ratios, round by round, where both were measured."""
    pairs = zip(ours, theirs, strict=True)
    return [math.log(judge.score(our) / judge.score(their)) for our, their in pairs if our and their]
