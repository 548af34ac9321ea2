"""`azq estimate` as a whole: settings as `azq up` takes them, memory before it is taken, then half a minute of play and training."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from azq.config import Config, RunSections
from azq.console.up import UpRequest, read_start
from azq.errors import ConfigError
from azq.host.devices import Wishes, detect, plan
from azq.parts.lab.calibrate.measure import game_size, measure, needs_of
from azq.parts.lab.calibrate.rates import (
    CORES,
    Need,
    Point,
    Rates,
    SampleReuse,
    StageRates,
    TwoSides,
    advice,
    by_stages,
    fits,
    gained_by,
    game_samples,
    gigabytes,
    hours_to,
    hours_until,
    on_cores,
    points_of,
    rates,
    same_rules,
    total,
)
from azq.presets import preset as preset_of
from azq.prices import catalogue
from azq.process.proc import usable_memory_bytes

NOTED_CORES = 0.1  # that others took
WATTS = 60.0  # of a small desktop at work


@dataclass(frozen=True, slots=True)
class KindPrice:
    """A kind of machine that the catalogue has: its price, and what its cores would do were they like these."""

    kind: str
    per_hour: float
    currency: str
    as_of: str
    samples: float | None  # an hour; None: it has GPUs, which were not measured
    binds: str


@dataclass(frozen=True, slots=True)
class ReachedLevel:
    """A published level, and hours until it at these rates; None: nothing to tell them by."""

    level: str
    place: str
    hours: float | None
    by: str  # samples, or cores


@dataclass(frozen=True, slots=True)
class Estimate:
    """All that `azq estimate` says; rates are an hour's."""

    game: str
    setting: str
    reuse: SampleReuse
    sides: TwoSides
    stages: Sequence[StageRates]  # the first one is what was measured
    needs: Sequence[Need]
    usable_bytes: int
    free_disk_bytes: int
    watts: float
    prices: Sequence[KindPrice]
    reached: Sequence[ReachedLevel]
    unpublished: str  # why no level is named; empty where one is
    trained_game_samples: float | None  # of a game, over the run behind its weights to take home; None: there are none for these rules
    others_cores: float | None

    @property
    def trained_games(self) -> float | None:
        """Games an hour of a run that learns, whose games get longer or shorter by it."""
        return self.rates.samples / self.trained_game_samples if self.trained_game_samples else None

    @property
    def rates(self) -> Rates:
        """Those that a run begins with, once the limiter ties its sides."""
        return self.stages[0].rates

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **asdict(self),
            "rates": asdict(self.rates),
            "trained_games": self.trained_games,
            "memory_bytes": total(self.needs),
            "memory_advice": advice(self.needs, self.usable_bytes),
            "kwh_per_hour": self.watts / 1000,
        }

    def as_text(self) -> list[str]:
        return [
            f"{self.game}: {self.setting}, {self.sides.cores} cores",
            *self._speed(),
            *self._ahead(),
            *self._later(),
            *memory_lines(self.needs, self.usable_bytes),
            *self._disk(),
            f"electricity  {self.watts / 1000:.3f} kWh an hour at {self.watts:g} W; --watts says what this machine takes at work",
            *(f"price        {_priced(price)}" for price in self.prices),
            *(f"until        {_reached(reach, self.watts)}" for reach in self.reached),
            *([f"until        {self.unpublished}"] if self.unpublished else []),
            *self._noise(),
        ]

    def _speed(self) -> list[str]:
        sides, rates, reuse = self.sides, self.rates, self.reuse
        learner = sides.learner.per_s / reuse.steps
        games = "too few ended in the time, give more --seconds" if rates.games is None else f"{rates.games:,.0f}"
        slower = "self-play" if sides.selfplay.per_s < learner else "the learner"
        binds = f"{rates.binds} bind" if rates.binds == CORES else f"{rates.binds} binds"
        trains = f"the learner {sides.learner.per_s:.2f} steps/s, enough for {learner:,.0f}"
        return [
            f"alone        self-play {sides.selfplay.per_s:,.0f} samples/s; {trains}",
            f"limiter      {reuse.samples_per_insert:g} draws a sample, a step each {1 / reuse.steps:,.0f}; {slower} is the slower side",
            f"together     {binds}; {rates.cores:.1f} cores at work",
            f"an hour      games {games}; samples {rates.samples:,.0f}; training steps {rates.steps:,.0f}",
            f"             evaluations {rates.evaluations:,.0f}; simulations {rates.simulations:,.0f}",
            *self._games(),
        ]

    def _games(self) -> list[str]:
        """How many they become by what is learned."""
        if self.trained_games is None:
            return []
        samples = f"{self.trained_game_samples:.1f} samples each, as in the run behind azq:{self.game}"
        return [f"             games {self.trained_games:,.0f} by what is learned, if they come to {samples}"]

    def _ahead(self) -> list[str]:
        """The time before the limiter ties the sides."""
        ahead, slack = self.stages[0].ahead, self.reuse.slack
        if ahead is None:
            return []
        hours = slack / gained_by(ahead, self.reuse) / ahead.samples
        until = f"until it is {slack:,} samples ahead (learner.limiter_slack), after {hours:.2f} h"
        return [f"at first     self-play does not wait, {until}: samples {ahead.samples:,.0f} an hour, training steps {ahead.steps:,.0f}"]

    def _later(self) -> list[str]:
        """Stages after the first, whose simulations are more."""
        return [_stage(stage, hours_until(stage.samples, self.stages, self.reuse)) for stage in self.stages[1:]]

    def _disk(self) -> list[str]:
        grows, free = self.rates.disk_bytes, self.free_disk_bytes
        return [f"disk         {gigabytes(grows)} of games an hour; {gigabytes(free)} are free, for {free / grows:,.0f} h"] if grows else []

    def _noise(self) -> list[str]:
        others = self.others_cores
        if others is None or others < NOTED_CORES:
            return []
        return [f"meanwhile    other programs took {others:.1f} of {self.sides.cores} cores: without them all is faster"]


def _stage(stage: StageRates, begins_h: float) -> str:
    begins = f"{stage.num_simulations} simulations from {stage.samples:,} samples on, after {begins_h:.2f} h"
    return f"later        {begins}: samples {stage.rates.samples:,.0f} an hour; {stage.rates.binds} would bind"


def memory_lines(needs: Sequence[Need], usable: int) -> list[str]:
    """Worst case by thing, and what to change where it does not fit."""
    parts = ", ".join(f"{need.what} {gigabytes(need.amount)}" for need in needs if need.amount)
    lines = [f"memory       at worst {gigabytes(total(needs))} of {gigabytes(usable)}: {parts}"]
    return [*lines, *(f"WARNING      {text}" for text in (advice(needs, usable),) if text)]


def prices_of(catalogue: Mapping[str, Any], sides: TwoSides, reuse: SampleReuse) -> list[KindPrice]:
    """Machines of the catalogue, services left out; those with GPUs have a price and no rate."""
    prices = []
    for kind, facts in catalogue["kinds"].items():
        if facts.get("service") or facts.get("per_hour") is None:
            continue
        there = None if facts.get("gpus") else rates(on_cores(sides, facts["vcpus"]), reuse)
        price, as_of = float(facts["per_hour"]), str(facts.get("as_of", ""))
        samples, binds = (there.samples, there.binds) if there else (None, "")
        prices.append(KindPrice(kind, price, catalogue["currency"], as_of, samples, binds))
    return prices


def reaches(points: Sequence[Point], stages: Sequence[StageRates], cores: int, reuse: SampleReuse) -> list[ReachedLevel]:
    """Hours to each published level."""
    by = {True: "samples", False: "cores"}
    return [ReachedLevel(point.level, point.place, hours_to(point, stages, cores, reuse), by[bool(point.samples)]) for point in points]


def _priced(price: KindPrice) -> str:
    cost = f"{price.kind} {price.per_hour:.2f} {price.currency} an hour ({price.as_of})"
    if price.samples is None:
        return f"{cost}: its GPUs were not measured, run this there"
    each = 1e6 * price.per_hour / price.samples
    return f"{cost}: {price.samples:,.0f} samples, {each:.2f} a million, if its cores were as these; {price.binds} would bind"


def _reached(reach: ReachedLevel, watts: float) -> str:
    if reach.hours is None:
        return f"{reach.level}: nothing to tell the time by ({reach.place})"
    how = "by samples" if reach.by == "samples" else "by minutes and cores alone, its samples were not counted"
    return f"{reach.hours:.2f} h, {reach.hours * watts / 1000:.3f} kWh: {reach.level} ({how}; {reach.place})"


LENGTHS_SHARE = 0.1  # of the time, for games to their end


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """The command line's arguments."""

    game: str | None = None
    preset: str = ""
    overrides: Sequence[str] = ()
    config_file: Path | None = None
    seconds: float = 30.0
    watts: float = WATTS


def estimate(request: EstimateRequest, progress: Callable[[str], None]) -> Estimate:
    """Measures and tells; nothing of it stays. Raises `ConfigError` where not even the measurement would fit into memory."""
    run = f"estimate-{os.getpid()}"  # that no folder has: the game's preset counts, whatever runs of it there are
    config = read_start(UpRequest(request.game, run, request.overrides, None, request.config_file, request.preset)).config
    sections, devices = config.run_sections(), plan(detect(), Wishes.of(config))
    size = game_size(sections, LENGTHS_SHARE * request.seconds)
    needs, usable = needs_of(sections, devices, size), usable_memory_bytes()
    for line in memory_lines(needs, usable):
        progress(line)
    _check_room([need for need in needs if need.setting != "learner.max_window"], usable)
    measurement = measure(config, devices, size, request.seconds, progress)
    learner = sections.learner
    reuse = SampleReuse(learner.samples_per_insert, learner.batch_size, learner.limiter_slack)
    stages = by_stages(measurement.measured, reuse, _budgets(sections))
    points, missing = _published(sections)
    return Estimate(
        game=sections.run.game,
        setting=setting_of(sections, request.preset),
        reuse=reuse,
        sides=measurement.measured,
        stages=stages,
        needs=[*needs, Need("programs", measurement.resident_bytes)],
        usable_bytes=usable,
        free_disk_bytes=_free_disk(config),
        watts=request.watts,
        prices=prices_of(catalogue(), measurement.measured, reuse),
        reached=reaches(points, stages, measurement.measured.cores, reuse),
        unpublished=missing,
        trained_game_samples=game_samples(sections.run.game) if points else None,
        others_cores=measurement.others_cores,
    )


def _check_room(taken: Sequence[Need], usable: int) -> None:
    if not fits(taken, usable):
        raise ConfigError(f"the measurement itself would not fit: {advice(taken, usable)}")


def _published(sections: RunSections) -> tuple[tuple[Point, ...], str]:
    """The game's published levels, or why there are none for these settings."""
    game = sections.run.game
    points = points_of(game)
    if not points:
        return (), f"no curve of {game} was published, so there is no level to estimate the time to"
    reason = same_rules(game, sections.run.params, preset_of(game)["run"].get("params", {}))
    return ((), reason) if reason else (points, "")


def _budgets(sections: RunSections) -> list[tuple[int, int]]:
    """Simulations of a move and the samples from which on they count; those by shares of a horizon are unknown where there is none."""
    later = [(stage.samples, stage.num_simulations) for stage in sections.search.schedule if stage.samples is not None]
    return [(0, sections.search.num_simulations), *later]


def setting_of(sections: RunSections, preset: str) -> str:
    """Settings in a few words."""
    network, search = sections.network, sections.search
    named = f"preset {preset}" if preset else "preset"
    return f"{named}, {network.kind} {network.blocks}x{network.channels}, {search.num_simulations} simulations"


def _free_disk(config: Config) -> int:
    """Room where runs go, or would go."""
    home = config.home.absolute()
    return shutil.disk_usage(next(folder for folder in (home, *home.parents) if folder.is_dir())).free
