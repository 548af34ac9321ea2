"""From what each side of a run does alone to what a run does: self-play and learner tied by the limiter, on the same cores. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

CORES = "the cores, which both sides share"
DEVICE = "the device, which evaluates and trains in turn"
HOUR_S = 3600.0
LEAST_CORES = 0.5  # for both sides, however few there are
OVERHEAD_CORES = 0.2  # of daemon, table, evaluations, checkpoints and weights of a run; docs/benchmarks.md has where it is from


@dataclass(frozen=True, slots=True)
class Side:
    """What one side of a run does with the machine to itself."""

    per_s: float  # samples, or training steps
    cpu_s: float  # of one of them, of all processes that it takes


@dataclass(frozen=True, slots=True)
class TwoSides:
    """A game on a machine, each side alone."""

    cores: int
    selfplay: Side  # by samples
    learner: Side  # by steps
    evaluations: float  # of a sample
    simulations: float  # of a sample
    game_samples: float | None  # of a game; None: too few ended in the time
    game_bytes: float | None  # of a game's record
    one_device: bool = False  # one accelerator evaluates and trains


@dataclass(frozen=True, slots=True)
class SampleReuse:
    """What ties the two sides: each sample is drawn `samples_per_insert` times, in batches."""

    samples_per_insert: float
    batch_size: int

    @property
    def steps(self) -> float:
        """Training steps that a sample allows."""
        return self.samples_per_insert / self.batch_size


@dataclass(frozen=True, slots=True)
class Rates:
    """What a run comes to once both sides are at work; an hour each, None where no game ended."""

    samples: float
    steps: float
    evaluations: float
    simulations: float
    games: float | None
    disk_bytes: float | None
    binds: str  # what holds it back
    cores: float  # busy
    samples_per_cpu_s: float


@dataclass(frozen=True, slots=True)
class StageRates:
    """A stage of a run, from so many samples on, by the simulations of a move."""

    samples: int
    num_simulations: int
    rates: Rates


def limits(measured: TwoSides, limiter: SampleReuse) -> Mapping[str, float]:
    """Samples per second that each thing allows, whatever else does."""
    selfplay, learner = measured.selfplay, measured.learner
    found = {
        "self-play": selfplay.per_s,
        "the learner": learner.per_s / limiter.steps,
        CORES: max(measured.cores - OVERHEAD_CORES, LEAST_CORES) / _cpu_s(measured, limiter),
    }
    if measured.one_device:
        found[DEVICE] = 1 / (1 / selfplay.per_s + limiter.steps / learner.per_s)
    return found


def rates(measured: TwoSides, limiter: SampleReuse) -> Rates:
    """The run's rates: the least of its limits binds."""
    allowed = limits(measured, limiter)
    binds = min(allowed, key=lambda name: allowed[name])
    samples, each = HOUR_S * allowed[binds], measured.game_samples
    games = samples / each if each else None
    return Rates(
        samples=samples,
        steps=samples * limiter.steps,
        evaluations=samples * measured.evaluations,
        simulations=samples * measured.simulations,
        games=games,
        disk_bytes=games * measured.game_bytes if games and measured.game_bytes else None,
        binds=binds,
        cores=OVERHEAD_CORES + allowed[binds] * _cpu_s(measured, limiter),
        samples_per_cpu_s=1 / _cpu_s(measured, limiter),
    )


def on_cores(measured: TwoSides, cores: int) -> TwoSides:
    """The same on so many cores of this kind: self-play spreads over them, one learner does not."""
    wider = replace(measured.selfplay, per_s=measured.selfplay.per_s * cores / measured.cores)
    return replace(measured, cores=cores, selfplay=wider)


def by_stages(measured: TwoSides, limiter: SampleReuse, budgets: Sequence[tuple[int, int]]) -> list[StageRates]:
    """A run's rates from the samples on at which each budget of simulations begins; the first budget, from nothing on, is the one measured.

    A sample takes self-play as much longer as its search has more simulations; the cache and the length of games stay as they were.
    """
    first = budgets[0][1]
    return [StageRates(begin, each, rates(_searched(measured, each / first), limiter)) for begin, each in budgets]


def hours_until(samples: float, stages: Sequence[StageRates]) -> float:
    """Hours until so many samples are there, stage by stage."""
    ends = [*(stage.samples for stage in stages[1:]), math.inf]
    return sum(max(0.0, min(samples, end) - stage.samples) / stage.rates.samples for stage, end in zip(stages, ends, strict=True))


def _searched(measured: TwoSides, factor: float) -> TwoSides:
    """The same with so many times the simulations a move."""
    side = measured.selfplay
    return replace(
        measured,
        selfplay=Side(side.per_s / factor, side.cpu_s * factor),
        evaluations=measured.evaluations * factor,
        simulations=measured.simulations * factor,
    )


def _cpu_s(measured: TwoSides, limiter: SampleReuse) -> float:
    """Of a sample and all the training that it allows."""
    return measured.selfplay.cpu_s + limiter.steps * measured.learner.cpu_s
