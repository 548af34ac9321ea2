"""`azq estimate` as a whole: settings as `azq up` takes them, memory before it is taken, then half a minute of play and training."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from azq.config import Config, RunSections
from azq.console.table import tabled
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
    points_of,
    same_rules,
    total,
)
from azq.presets import preset as preset_of
from azq.process.proc import usable_memory_bytes

Rows = Iterator[tuple[str, str]]  # a heading and its text
NOTED_CORES = 0.1  # that others took


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
        rows = [
            *self._speed(),
            *self._later(),
            *memory_rows(self.needs, self.usable_bytes),
            *self._disk(),
            ("electricity", f"{self.watts / 1000:.3f} kWh an hour at {self.watts:g} W; set what this machine takes at work by --watts"),
            *(("until", _reached(reach, self.watts)) for reach in self.reached),
            *([("until", self.unpublished)] if self.unpublished else []),
            *self._noise(),
        ]
        return [f"{self.game}: {self.setting}, {self.sides.cores} cores", *tabled(rows, "", "")]

    def _speed(self) -> Rows:
        sides, rates, reuse = self.sides, self.rates, self.reuse
        learner = sides.learner.per_s / reuse.steps
        games = "too few ended in the time, give more --seconds" if rates.games is None else f"{rates.games:,.0f}"
        slower = "self-play" if sides.selfplay.per_s < learner else "the learner"
        binds = f"{rates.binds} bind" if rates.binds == CORES else f"{rates.binds} binds"
        trains = f"the learner {sides.learner.per_s:.2f} steps/s, enough for {learner:,.0f}"
        yield "alone", f"self-play {sides.selfplay.per_s:,.0f} samples/s; {trains}"
        yield "limiter", f"{reuse.samples_per_insert:g} draws a sample, a step for {1 / reuse.steps:,.0f}; {slower} is the slower side"
        yield "together", f"{binds}; {rates.cores:.1f} cores at work"
        yield "an hour", f"games {games}; samples {rates.samples:,.0f}; training steps {rates.steps:,.0f}"
        yield "", f"evaluations {rates.evaluations:,.0f}; simulations {rates.simulations:,.0f}"
        if self.trained_games is not None:
            samples = f"{self.trained_game_samples:.1f} samples, as in the run behind azq:{self.game}"
            yield "", f"games {self.trained_games:,.0f} by what is learned, if a game comes to {samples}"
        if (ahead := self.stages[0].ahead) is not None:
            until = f"until it is {reuse.slack:,} samples ahead (learner.limiter_slack)"
            hours = reuse.slack / gained_by(ahead, reuse) / ahead.samples
            rate = f"samples {ahead.samples:,.0f} an hour, training steps {ahead.steps:,.0f}"
            yield "at first", f"self-play does not wait, {until}, after {hours:.2f} h: {rate}"

    def _later(self) -> Rows:
        """Stages after the first, whose simulations are more."""
        for stage in self.stages[1:]:
            begins_h = hours_until(stage.samples, self.stages, self.reuse)
            begins = f"{stage.num_simulations} simulations from {stage.samples:,} samples on, after {begins_h:.2f} h"
            yield "later", f"{begins}: samples {stage.rates.samples:,.0f} an hour; {stage.rates.binds} would bind"

    def _disk(self) -> Rows:
        if grows := self.rates.disk_bytes:
            free = self.free_disk_bytes
            yield "disk", f"{gigabytes(grows)} of games an hour; {gigabytes(free)} are free, for {free / grows:,.0f} h"

    def _noise(self) -> Rows:
        if self.others_cores is not None and self.others_cores >= NOTED_CORES:
            yield "meanwhile", f"other programs took {self.others_cores:.1f} of {self.sides.cores} cores: without them all is faster"


def memory_rows(needs: Sequence[Need], usable: int) -> Rows:
    """Worst case by thing, and what to change where it does not fit."""
    parts = ", ".join(f"{need.what} {gigabytes(need.amount)}" for need in needs if need.amount)
    yield "memory", f"at worst {gigabytes(total(needs))} of {gigabytes(usable)}: {parts}"
    if remedy := advice(needs, usable):
        yield "WARNING", remedy


def reaches(points: Sequence[Point], stages: Sequence[StageRates], cores: int, reuse: SampleReuse) -> list[ReachedLevel]:
    """Hours to each published level."""
    by = {True: "samples", False: "cores"}
    return [ReachedLevel(point.level, point.place, hours_to(point, stages, cores, reuse), by[bool(point.samples)]) for point in points]


def _reached(reach: ReachedLevel, watts: float) -> str:
    if reach.hours is None:
        return f"{reach.level}: nothing to tell the time by ({reach.place})"
    how = "by samples" if reach.by == "samples" else "by minutes and cores alone, its samples were not counted"
    return f"{reach.hours:.2f} h, {reach.hours * watts / 1000:.3f} kWh: {reach.level} ({how}; {reach.place})"


LENGTHS_SHARE = 0.1  # of the time, for games to their end


def estimate(
    game: str,
    *,
    preset: str,
    overrides: Sequence[str],
    config_file: Path | None,
    seconds: float,
    watts: float,
    progress: Callable[[str], None],
) -> Estimate:
    """Measures and estimates; no file of it stays. Raises `ConfigError` where not even the measurement would fit into memory."""
    run = f"estimate-{os.getpid()}"  # that no folder has: the game's preset counts, whatever runs of it there are
    config = read_start(UpRequest(game, run, overrides, None, config_file, preset)).config
    sections, devices = config.run_sections(), plan(detect(), Wishes.of(config))
    size = game_size(sections, LENGTHS_SHARE * seconds)
    needs, usable = needs_of(sections, devices, size), usable_memory_bytes()
    for row in memory_rows(needs, usable):
        progress(": ".join(row))
    measured = [need for need in needs if need.setting != "learner.max_window"]
    if not fits(measured, usable):
        raise ConfigError(f"the measurement itself would not fit: {advice(measured, usable)}")
    measurement = measure(config, devices, size, seconds, progress)
    learner = sections.learner
    reuse = SampleReuse(learner.samples_per_insert, learner.batch_size, learner.limiter_slack)
    stages = by_stages(measurement.measured, reuse, _budgets(sections))
    points, missing = _published(sections)
    return Estimate(
        game=sections.run.game,
        setting=setting_of(sections, preset),
        reuse=reuse,
        sides=measurement.measured,
        stages=stages,
        needs=[*needs, Need("programs", measurement.resident_bytes)],
        usable_bytes=usable,
        free_disk_bytes=_free_disk(config),
        watts=watts,
        reached=reaches(points, stages, measurement.measured.cores, reuse),
        unpublished=missing,
        trained_game_samples=game_samples(sections.run.game) if points else None,
        others_cores=measurement.others_cores,
    )


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
