"""A study as its file says it: which settings vary and how, what a trial is, what counts. Pure but for reading the file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from azq import games
from azq.config import RUN_NAME_PATTERN
from azq.config.base import first_wrong
from azq.config.loading import given, read_toml
from azq.errors import AzqError, ConfigError
from azq.goals import Goals
from azq.presets import preset as preset_of
from azq.status.results import Scalar
from azq.status.summary import RunStatus

CPU_S = "cpu-s="
RUN_SECTIONS = ("run", "search", "selfplay", "network", "learner", "arena")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Range(_Part):
    """Uniform range, of integers if both bounds are; `log` samples log-uniformly."""

    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _sound(self) -> Range:
        if self.low >= self.high or (self.log and self.low <= 0):
            raise ValueError(f"low {self.low} is not below high {self.high}" if self.low >= self.high else "log needs a low above 0")
        return self


class Choices(_Part):
    """A categorical setting."""

    choices: Annotated[list[Scalar], Field(min_length=2)]


def _kind(part: object) -> str:
    return "choices" if isinstance(part, Choices) or (isinstance(part, Mapping) and "choices" in part) else "range"


Part = Annotated[Annotated[Range, Tag("range")] | Annotated[Choices, Tag("choices")], Discriminator(_kind)]
Space = dict[str, Part]  # by setting, as `learner.learning_rate`


class StudyPlan(_Part):
    """A study: `trials` runs of a game, each to `until`, `at_once` side by side; the rest is as `settings` or the preset say."""

    name: Annotated[str, Field(pattern=RUN_NAME_PATTERN, max_length=40)]
    game: str = "connect_four"
    preset: str = ""
    trials: Annotated[int, Field(ge=1, le=100_000)] = 10
    until: str = "minutes=5"
    metric: Literal["errors", "elo", "score", "loss"] = "errors"  # of the newest evaluated weights; errors and loss are to be small
    at_once: Annotated[int, Field(ge=1, le=64)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0  # of the proposals, and of every run: all are graded on the same positions
    where: Literal["here"] = "here"  # each run an `azq up`; earlier versions had "fleet", runs of a daemon
    prune: bool = True  # trials that do worse than most did at the same point end early
    settings: dict[str, Scalar | list[Scalar]] = {}
    space: Annotated[Space, Field(min_length=1)]

    @property
    def upwards(self) -> bool:
        """Whether more is better."""
        return self.metric in ("elo", "score")

    @property
    def goals(self) -> str:
        """The goals of `until` that `azq up` takes."""
        return ",".join(part for part in self.until.split(",") if not part.startswith(CPU_S))

    def limit_cpu_s(self) -> float:
        """CPU-seconds that a run may take; infinitely many where `until` names none. Raises `ConfigError`."""
        named = [part.removeprefix(CPU_S) for part in self.until.split(",") if part.startswith(CPU_S)]
        try:
            limits = [float(text) for text in named]
        except ValueError:
            limits = [0.0]
        if any(limit <= 0 for limit in limits):
            raise ConfigError(f"until {self.until!r}: cpu-s=N is a positive number")
        return min(limits, default=math.inf)

    @property
    def log_scaled(self) -> list[str]:
        """Settings that are as likely in each power of ten."""
        return [name for name, part in self.space.items() if isinstance(part, Range) and part.log]

    def run_name(self, number: int) -> str:
        """The run of a trial."""
        return f"{self.name}-{number:04}"

    def overrides(self, chosen: Mapping[str, Scalar]) -> list[str]:
        """A trial's settings as `--set` takes them."""
        return [f"{name}={json.dumps(value)}" for name, value in {"run.seed": self.seed, **self.settings, **chosen}.items()]


def read_plan(path: Path) -> StudyPlan:
    """The study of a TOML file: `[study]` with the settings of `StudyPlan`, `[settings]` and `[space]` by setting.

    Raises `ConfigError` naming what is wrong: also a setting that no run has, or a value that it does not take.
    """
    data = read_toml(path)
    try:
        plan = StudyPlan(**data.get("study", {}), settings=data.get("settings", {}), space=data.get("space", {}))
        Goals.parse(plan.goals)
        plan.limit_cpu_s()
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_wrong(error)}") from None
    for chosen in _corners(plan.space):
        _check(path, plan, chosen)
    return plan


def measured(plan: StudyPlan, status: RunStatus) -> float | None:
    """What a run is worth so far; None while nothing was measured."""
    if plan.metric == "elo":
        return status.strength.elo
    if plan.metric == "score":
        return status.strength.score
    if plan.metric == "errors":
        return status.strength.error_share
    return None if status.loss_policy is None or status.loss_value is None else status.loss_policy + status.loss_value


def _corners(space: Space) -> list[dict[str, Scalar]]:
    """Each setting's extremes, one at a time, the others at their first."""
    ends = {name: [part.low, part.high] if isinstance(part, Range) else part.choices for name, part in space.items()}
    first = {name: values[0] for name, values in ends.items()}
    return [first | {name: value} for name, values in ends.items() for value in values]


def _check(path: Path, plan: StudyPlan, chosen: Mapping[str, Scalar]) -> None:
    for name in {**plan.settings, **plan.space}:
        if not re.fullmatch(rf"({'|'.join(RUN_SECTIONS)})(\.[a-z0-9_]+)+", name):
            raise ConfigError(f"{path}: {name!r} is no setting of a run; name one as `learner.learning_rate`, of {', '.join(RUN_SECTIONS)}")
    try:
        config = given([f"run.game={json.dumps(plan.game)}", *plan.overrides(chosen)], base=preset_of(plan.game, plan.preset))
        games.load(config.run.game, **config.run.params)
    except AzqError as error:
        raise ConfigError(f"{path}: {error}") from None
