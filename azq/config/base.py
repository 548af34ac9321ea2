"""What every section is made of, and how a wrong one is explained."""

from __future__ import annotations

import itertools
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

RUN_NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"
TAG_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,31}$"

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0)]
Tag = Annotated[str, Field(pattern=TAG_PATTERN)]
StageT = TypeVar("StageT", bound="Stage")


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Stage(Section):
    """What changes from a share of the run's horizon on."""

    at: Fraction


def ascending(stages: tuple[StageT, ...]) -> tuple[StageT, ...]:
    """The stages, in the order of the run; ValueError where they are not."""
    if any(later.at <= sooner.at for sooner, later in itertools.pairwise(stages)):
        raise ValueError("its stages are not in the order of the run; let `at` grow from one to the next")
    return stages


def explain(error: ValidationError, source: object) -> str:
    """One line that names each wrong key, and where it may come from."""
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in item["loc"]) or "(top level)"
        what = "unknown key" if item["type"] == "extra_forbidden" else item["msg"]
        problems.append(f"{key}: {what}")
    return f"configuration ({source}, environment or --set) is wrong: {'; '.join(problems)}; `azq config show` lists every key"
