"""From what each side of a run does alone to what a run does: self-play and learner tied by the limiter, on the same cores. Pure."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import msgspec

from azq import pretrained

CORES = "the cores, which both sides share"
DEVICE = "the device, which evaluates and trains in turn"
SELFPLAY, LEARNER = "self-play", "the learner"
HOUR_S = 3600.0
SHARED = 0.8  # of its speed alone: a side that is slower than that beside the other is bound by what they share
OVERHEAD_CORES = 0.2  # of daemon, table, evaluations, checkpoints and weights of a run; docs/benchmarks.md has where it is from


@dataclass(frozen=True, slots=True)
class Side:
    """What one side of a run does with the machine to itself."""

    per_s: float  # samples, or training steps
    cpu_s: float  # of one of them, of all processes that it takes


@dataclass(frozen=True, slots=True)
class AtOnce:
    """What both sides do at the same time, neither waiting for the other."""

    samples_per_s: float
    steps_per_s: float


@dataclass(frozen=True, slots=True)
class TwoSides:
    """A game on a machine, each side alone, and both at once."""

    cores: int
    selfplay: Side  # by samples
    learner: Side  # by steps
    evaluations: float  # of a sample
    simulations: float  # of a sample
    game_samples: float | None  # of a game; None: too few ended in the time
    game_bytes: float | None  # of a game's record
    one_device: bool = False  # one accelerator evaluates and trains
    at_once: AtOnce | None = None  # None: not measured, and judged by the CPU that each takes alone


@dataclass(frozen=True, slots=True)
class SampleReuse:
    """What ties the two sides: each sample is drawn `samples_per_insert` times, in batches, once self-play is `slack` samples ahead."""

    samples_per_insert: float
    batch_size: int
    slack: int = 0

    @property
    def steps(self) -> float:
        """Training steps that a sample allows."""
        return self.samples_per_insert / self.batch_size


@dataclass(frozen=True, slots=True)
class Rates:
    """What a run comes to with both sides at work; an hour each, None where no game ended."""

    samples: float
    steps: float
    evaluations: float
    simulations: float
    games: float | None  # as long as untrained play makes them
    disk_bytes: float | None
    binds: str  # what holds it back
    cores: float  # busy
    samples_per_cpu_s: float


@dataclass(frozen=True, slots=True)
class StageRates:
    """A stage of a run, from so many samples on, by the simulations of a move."""

    samples: int
    num_simulations: int
    rates: Rates  # once the limiter ties the sides
    ahead: Rates | None = None  # as long as self-play may run ahead; None: it is the slower side, or both were not measured at once


def limits(measured: TwoSides, reuse: SampleReuse) -> Mapping[str, float]:
    """Samples per second that each thing allows, whatever else does."""
    selfplay, learner = measured.selfplay, measured.learner
    allowed = _tied(measured, reuse) or {SELFPLAY: selfplay.per_s, LEARNER: learner.per_s / reuse.steps}
    allowed[CORES] = min(allowed.get(CORES, math.inf), _room(measured) / _cpu_s(measured, 1.0, reuse.steps))
    if measured.one_device and not measured.at_once:
        allowed[DEVICE] = 1 / (1 / selfplay.per_s + reuse.steps / learner.per_s)
    return allowed


def rates(measured: TwoSides, reuse: SampleReuse) -> Rates:
    """The run's rates once the limiter ties the sides: the least of its limits binds."""
    allowed = limits(measured, reuse)
    binds = min(allowed, key=lambda name: allowed[name])
    return _rates(measured, allowed[binds], allowed[binds] * reuse.steps, binds)


def rates_ahead(measured: TwoSides, reuse: SampleReuse) -> Rates | None:
    """Those of a run whose self-play is still allowed to run ahead; None where it does not, or where both were not measured at once."""
    both = measured.at_once
    if not both or not reuse.slack or both.samples_per_s * reuse.steps <= both.steps_per_s:
        return None
    share = min(1.0, _room(measured) / _cpu_s(measured, both.samples_per_s, both.steps_per_s))
    return _rates(measured, share * both.samples_per_s, share * both.steps_per_s, DEVICE if measured.one_device else CORES)


def _tied(measured: TwoSides, reuse: SampleReuse) -> dict[str, float] | None:
    """Samples per second of both sides when the faster one waits for the other, from what they do at once and alone.

    The slower side goes the faster the less of the time the other one is at work: in a straight line from its rate beside it to that alone.
    """
    both = measured.at_once
    if not both:
        return None
    play, train = (measured.selfplay.per_s, both.samples_per_s), (measured.learner.per_s / reuse.steps, both.steps_per_s / reuse.steps)
    (alone, beside), fast, slower = (train, play[1], LEARNER) if train[1] < play[1] else (play, train[1], SELFPLAY)
    per_s = fast * alone / (fast + max(0.0, alone - beside))
    shared = DEVICE if measured.one_device else CORES
    return {slower if per_s >= SHARED * alone else shared: per_s}


def _rates(measured: TwoSides, samples_per_s: float, steps_per_s: float, binds: str) -> Rates:
    samples, of_game = HOUR_S * samples_per_s, measured.game_samples
    games = samples / of_game if of_game else None
    busy = _cpu_s(measured, samples_per_s, steps_per_s)
    return Rates(
        samples=samples,
        steps=HOUR_S * steps_per_s,
        evaluations=samples * measured.evaluations,
        simulations=samples * measured.simulations,
        games=games,
        disk_bytes=games * measured.game_bytes if games and measured.game_bytes else None,
        binds=binds,
        cores=OVERHEAD_CORES + busy,
        samples_per_cpu_s=samples_per_s / busy,
    )


def by_stages(measured: TwoSides, reuse: SampleReuse, budgets: Sequence[tuple[int, int]]) -> list[StageRates]:
    """A run's rates from the samples on at which each budget of simulations begins; the first budget, from nothing on, is the one measured.

    A sample takes self-play as much longer as its search has more simulations; the cache and the length of games stay as they were.
    """
    stages = []
    for begin, simulations in budgets:
        there = _searched(measured, simulations / budgets[0][1])
        stages.append(StageRates(begin, simulations, rates(there, reuse), rates_ahead(there, reuse)))
    return stages


def hours_until(samples: float, stages: Sequence[StageRates], reuse: SampleReuse) -> float:
    """Hours until so many samples are there, stage by stage, the first of them while self-play runs ahead of the learner.

    What it is ahead by is kept from then on: that a learner makes up for it where self-play got slower is left out.
    """
    hours, lead = 0.0, 0.0
    ends = [*(stage.samples for stage in stages[1:]), math.inf]
    for stage, end in zip(stages, ends, strict=True):
        left = max(0.0, min(samples, end) - stage.samples)
        if stage.ahead and lead < reuse.slack:
            gained = gained_by(stage.ahead, reuse)
            free = min(left, (reuse.slack - lead) / gained)
            hours += free / stage.ahead.samples
            lead += free * gained
            left -= free
        hours += left / stage.rates.samples
    return hours


def gained_by(ahead: Rates, reuse: SampleReuse) -> float:
    """How far self-play gets ahead of the learner by each sample, at such rates."""
    return 1.0 - ahead.steps / reuse.steps / ahead.samples


def _searched(measured: TwoSides, factor: float) -> TwoSides:
    """The same with so many times the simulations a move."""
    side, both = measured.selfplay, measured.at_once
    return replace(
        measured,
        selfplay=Side(side.per_s / factor, side.cpu_s * factor),
        at_once=replace(both, samples_per_s=both.samples_per_s / factor) if both else None,
        evaluations=measured.evaluations * factor,
        simulations=measured.simulations * factor,
    )


def _room(measured: TwoSides) -> float:
    """Cores for both sides."""
    return measured.cores - OVERHEAD_CORES


def _cpu_s(measured: TwoSides, samples: float, steps: float) -> float:
    """Of so many samples and training steps; of those of a second, the cores that are busy."""
    return samples * measured.selfplay.cpu_s + steps * measured.learner.cpu_s


NODE_BYTES, EDGE_BYTES = 64, 24  # of trees whose search does not say: a header, and an action that is legal (docs/3-search.md)
PARAMETER_BYTES = 4 * 5  # weights, gradients, two moments of the optimizer, the average that is published
TIGHT = 0.8  # of what is there: above it a warning, for other programs want some too


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that takes memory; `value` is that of the setting it grows with, in proportion."""

    what: str
    amount: int
    setting: str = ""  # empty: none makes it smaller
    value: int = 0


def tree_bytes(num_simulations: int, num_actions: int) -> int:
    """A tree at its largest, where its search does not tell: twice as many nodes as simulations, every action legal."""
    return 2 * (num_simulations + 1) * (NODE_BYTES + EDGE_BYTES * num_actions)


def total(needs: Sequence[Need]) -> int:
    return sum(need.amount for need in needs)


def fits(needs: Sequence[Need], usable: int) -> bool:
    return total(needs) <= TIGHT * usable


def advice(needs: Sequence[Need], usable: int) -> str:
    """One setting that makes it fit and its largest value that does, the one that frees most first; empty where it fits already."""
    if fits(needs, usable):
        return ""
    over = total(needs) - TIGHT * usable
    usage = f"at worst {gigabytes(total(needs))} of {gigabytes(usable)} that may be used"
    for need in sorted((need for need in needs if need.setting), key=lambda need: -need.amount):
        value = math.floor(need.value * (1 - over / need.amount)) if need.amount else 0
        if value >= 1:
            return f"{usage}: {need.what} takes {gigabytes(need.amount)}; set {need.setting}={value} or less"
    names = ", ".join(need.setting for need in needs if need.setting)
    return f"{usage}: no setting alone makes it fit; lower several of {names}, or take a machine with more memory"


def gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.2f} GB" if amount >= 1e9 else f"{amount / 1e6:.1f} MB"


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A level that a run of a game's preset reached, and where that is written."""

    level: str
    place: str
    samples: int | None = None
    games: int | None = None
    cpu_s: float | None = None
    minutes: float | None = None  # on `cores`, where samples were not counted
    cores: int | None = None
    commit: str = ""


def points_of(game: str) -> tuple[Point, ...]:
    """Those of a game with its usual parameters; none where nothing was published."""
    values = tomllib.loads((files("azq.parts.lab.calibrate") / "published.toml").read_text("utf-8"))
    return msgspec.convert(values.get(game, ()), tuple[Point, ...])


def same_rules(game: str, params: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Why a game's curve does not count for these settings; empty where it does."""
    return "" if dict(params) == dict(usual) else f"{game} was published with {dict(usual) or 'no parameters'}, these are {dict(params)}"


def game_samples(game: str) -> float | None:
    """Samples of a game, meant over the whole run that the game's weights to take home are from; None where there are none."""
    if game not in pretrained.names():
        return None
    training = pretrained.card(game).training
    return training.samples / training.games


def hours_to(point: Point, stages: Sequence[StageRates], cores: int, reuse: SampleReuse) -> float | None:
    """Hours from nothing to the point: by its samples, else by the cores of its machine, as if a core were a core."""
    if point.samples:
        return hours_until(point.samples, stages, reuse)
    if point.minutes and point.cores:
        return point.minutes * point.cores / cores / 60
    return None
