"""Which arrangement is measured next, and which one is taken: coordinate descent, then a test on fresh figures. Pure.

Machines drift and others work on them, so only figures of the same round are compared, and rounds are run forwards and backwards. What is
best of several is so by luck in part; therefore the winner is measured anew against what was set, and taken if that test says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from azq.estimate.rates import HOUR_S, SampleReuse, Side, TwoSides, rates
from azq.tune.arrangement import Arrangement, Axis

ALPHA = 0.025  # how often noise alone may change something, at most
WORTH = math.log(1.02)  # what is not faster by as much does not become the best of its axis


class Performed(NamedTuple):
    """What self-play did for some seconds in one arrangement."""

    simulations_per_s: float
    cpu_s: float  # of a simulation, of all processes
    evaluations_per_s: float
    mean_batch: float
    open_games: float  # in all processes


Course = Generator[Arrangement, Performed | None, "TunedChoice"]  # it is sent None where an arrangement cannot be measured


@dataclass(frozen=True, slots=True)
class TrialJudge:
    """What a figure is worth: samples of the whole run, learner included."""

    cores: int
    learner: Side
    reuse: SampleReuse
    simulations: float  # of a sample
    game_simulations: float | None  # of a game; None: nobody knows
    longer: float  # times as long as now that a game may take
    one_device: bool = False
    shared: bool = False  # others work on the machine: only CPU-seconds count, which they move least

    def samples_per_s(self, found: Performed) -> float:
        """Of self-play with the machine to itself."""
        return found.simulations_per_s / self.simulations

    def samples_per_cpu_s(self, found: Performed) -> float:
        return 1 / (found.cpu_s * self.simulations)

    def score(self, found: Performed) -> float:
        """Samples per second of the run, whose learner takes its share of the same cores; on a shared machine a CPU-second of self-play."""
        if self.shared:
            return self.samples_per_cpu_s(found)
        side = Side(self.samples_per_s(found), found.cpu_s * self.simulations)
        return rates(TwoSides(self.cores, side, self.learner, 0.0, 0.0, None, None, self.one_device), self.reuse).samples / HOUR_S

    def game_s(self, found: Performed) -> float | None:
        """From a game's begin to its end (Little's law)."""
        return found.open_games * self.game_simulations / found.simulations_per_s if self.game_simulations else None

    def too_long(self, found: Sequence[Performed | None], before: Sequence[Performed | None]) -> bool:
        """Whether games would take far longer than they do: they would end, and teach, late."""
        new, old = ([seconds for each in which if each and (seconds := self.game_s(each)) is not None] for which in (found, before))
        return bool(new and old) and fmean(new) > self.longer * fmean(old)


@dataclass(frozen=True, slots=True)
class CoursePlan:
    """What is varied, how often each is measured, and what may be measured at all."""

    axes: Sequence[Axis]
    told: Sequence[Axis]  # varied at the end, to be told of and not taken
    rounds: int = 2
    confirmations: int = 8
    fits: Callable[[Arrangement], bool] = lambda arrangement: True  # into memory

    def trials(self, start: Arrangement) -> int:
        """About as many as there will be."""
        counts = (1 + sum(map(self.fits, axis.others(start))) for axis in (*self.axes, *self.told))
        return 2 * self.confirmations + self.rounds * sum(counts)


@dataclass(frozen=True, slots=True)
class AxisSeen:
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
    seen: Sequence[AxisSeen]
    told: Sequence[AxisSeen]
    candidate: Arrangement  # what the test was of
    ratio: float  # of it to what was set, in the test
    p: float  # that noise alone looks as good
    too_long: bool = False  # it would have been taken, but for games that take far longer

    @property
    def changes_nothing(self) -> bool:
        return self.chosen == self.start


def course(start: Arrangement, plan: CoursePlan, judge: TrialJudge) -> Course:
    """Yields what to measure, is sent what was measured, and returns what to take."""
    best, base, seen, told = start, 1.0, [], []
    for axis in plan.axes:
        found = yield from _axis(axis, best, base, plan, judge)
        seen.append(found)
        faster = {each: ratio for each, ratio in found.ratios.items() if each not in found.too_long}
        winner = max(faster, key=lambda each: faster[each], default=best)
        if winner != best and math.log(faster[winner] / base) > WORTH:
            best, base = winner, faster[winner]
    ratio, p, too_long = 1.0, 1.0, False
    if best != start:
        figures = yield from _rounds([start, best], plan.confirmations)
        if logs := _logs(figures[best], figures[start], judge):
            ratio, p = math.exp(fmean(logs)), chance_of_sum(logs)
            too_long = judge.too_long(figures[best], figures[start])
    chosen = best if p <= ALPHA and not too_long else start
    for axis in plan.told:
        told.append((yield from _axis(axis, chosen, ratio if chosen == best else 1.0, plan, judge)))
    return TunedChoice(start, chosen, seen, told, best, ratio, p, too_long and p <= ALPHA)


def chance_of_sum(logs: Sequence[float]) -> float:
    """How often the sum is as large where each sign is as likely as the other: an exact permutation test of pairs (Fisher, 1935)."""
    total = sum(logs) - 1e-12
    count = sum(sum(signed) >= total for signed in itertools.product(*((each, -each) for each in logs)))
    return count / float(2 ** len(logs))


def turns(options: Sequence[Arrangement], number: int) -> list[Arrangement]:
    """The order of a round: every other one backwards, and each two begin one further; of two options ABBA, then BAAB."""
    begin = number // 2 % len(options)
    turned = [*options[begin:], *options[:begin]]
    return turned[::-1] if number % 2 else turned


def _axis(
    axis: Axis, best: Arrangement, base: float, plan: CoursePlan, judge: TrialJudge
) -> Generator[Arrangement, Performed | None, AxisSeen]:
    options = [best, *filter(plan.fits, axis.others(best))]
    found = yield from _rounds(options, plan.rounds if len(options) > 1 else 0)
    logs = {each: _logs(figures, found[best], judge) for each, figures in found.items()}
    ratios = {each: base * math.exp(fmean(known)) for each, known in logs.items() if known}
    return AxisSeen(axis.name, best, ratios, frozenset(each for each in ratios if judge.too_long(found[each], found[best])))


Figures = dict[Arrangement, list[Performed | None]]


def _rounds(options: Sequence[Arrangement], rounds: int) -> Generator[Arrangement, Performed | None, Figures]:
    """Figures of each round in order, None where there were none: what a machine at other work stood still for is tried in the next."""
    found: Figures = {each: [] for each in options}
    for number in range(rounds):
        for each in turns(options, number):
            performed = yield each
            found[each].append(performed)
    return found


def _logs(ours: Sequence[Performed | None], theirs: Sequence[Performed | None], judge: TrialJudge) -> list[float]:
    """Of ratios, round by round, where both were measured."""
    pairs = zip(ours, theirs, strict=True)
    return [math.log(judge.score(our) / judge.score(their)) for our, their in pairs if our and their]
