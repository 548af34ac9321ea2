"""`azq estimate` as a whole: settings as `azq up` takes them, memory before it is taken, then half a minute of play and training."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from azq.config import Config, RunSections
from azq.console.up import UpRequest, read_start
from azq.errors import ConfigError
from azq.estimate.lengths import game_size
from azq.estimate.measure import measure, needs_of
from azq.estimate.memory import Need, advice, fits
from azq.estimate.published import Point, game_samples, points_of, same_rules
from azq.estimate.rates import SampleReuse, by_stages
from azq.estimate.told import WATTS, Estimate, memory_lines, prices_of, reaches
from azq.host.devices import Wishes, plan
from azq.host.hardware import detect
from azq.presets import preset as preset_of
from azq.prices import catalogue
from azq.process.proc import usable_memory_bytes

LENGTHS_SHARE = 0.1  # of the time, for games to their end


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What the command line asked for."""

    game: str | None = None
    preset: str = ""
    overrides: Sequence[str] = ()
    config_file: Path | None = None
    seconds: float = 30.0
    watts: float = WATTS


def estimate(asked: EstimateRequest, say: Callable[[str], None]) -> Estimate:
    """Measures and tells; nothing of it stays. Raises `ConfigError` where not even the measurement would fit into memory."""
    run = f"estimate-{os.getpid()}"  # that no folder has: the game's preset counts, whatever runs of it there are
    config = read_start(UpRequest(asked.game, run, asked.overrides, None, asked.config_file, asked.preset)).config
    sections, devices = config.run_sections(), plan(detect(), Wishes.of(config))
    size = game_size(sections, LENGTHS_SHARE * asked.seconds)
    needs, usable = needs_of(sections, devices, size), usable_memory_bytes()
    for line in memory_lines(needs, usable):
        say(line)
    _check_room([need for need in needs if need.setting != "learner.max_window"], usable)
    found = measure(config, devices, size, asked.seconds, say)
    learner = sections.learner
    reuse = SampleReuse(learner.samples_per_insert, learner.batch_size, learner.limiter_slack)
    stages = by_stages(found.measured, reuse, _budgets(sections))
    points, missing = _published(sections)
    return Estimate(
        game=sections.run.game,
        setting=setting_of(sections, asked.preset),
        reuse=reuse,
        sides=found.measured,
        stages=stages,
        needs=[*needs, Need("programs", found.resident_bytes)],
        usable_bytes=usable,
        free_disk_bytes=_free_disk(config),
        watts=asked.watts,
        prices=prices_of(catalogue(), found.measured, reuse),
        reached=reaches(points, stages, found.measured.cores, reuse),
        unpublished=missing,
        trained_game_samples=game_samples(sections.run.game) if points else None,
        others_cores=found.others_cores,
    )


def _check_room(taken: Sequence[Need], usable: int) -> None:
    if not fits(taken, usable):
        raise ConfigError(f"the measurement itself would not fit: {advice(taken, usable)}")


def _published(sections: RunSections) -> tuple[tuple[Point, ...], str]:
    """The game's published levels, or why there are none for these settings."""
    game = sections.run.game
    points = points_of(game)
    if not points:
        return (), f"no curve of {game} was published, so nobody can say when it plays well"
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
