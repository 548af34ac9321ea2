"""What every section is made of, and how a wrong one is explained."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

RUN_NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"
TAG_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,31}$"

# Numbers, each with an end: generous ones, so that a slip or a stranger's run costs an error and not a host's memory.
Positive = Annotated[int, Field(gt=0, le=2**20)]
Natural = Annotated[int, Field(ge=0, le=2**20)]
Few = Annotated[int, Field(gt=0, le=1024)]  # threads, processes, connections
FewOrNone = Annotated[int, Field(ge=0, le=1024)]
Many = Annotated[int, Field(gt=0, le=10**9)]  # samples, stored games
Blocks = Annotated[int, Field(gt=0, le=256)]
Channels = Annotated[int, Field(gt=0, le=4096)]
Simulations = Annotated[int, Field(gt=0, le=65_535)]  # records count them in 16 bits
Plies = Annotated[int, Field(ge=0, le=65_535)]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Real = Annotated[float, Field(ge=-1e15, le=1e15)]
Factor = Annotated[float, Field(gt=0.0, le=1e6)]
Weight = Annotated[float, Field(ge=0.0, le=1e6)]  # 0: without it
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=366 * 86_400.0)]
SecondsOrNever = Annotated[float, Field(ge=0.0, le=366 * 86_400.0)]
Url = Annotated[str, Field(repr=False)]  # may hold a password
Urls = Annotated[tuple[str, ...], Field(repr=False)]
Tag = Annotated[str, Field(pattern=TAG_PATTERN)]
StageT = TypeVar("StageT", bound="Stage")


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    retired: ClassVar[Mapping[str, object]] = {}  # of earlier versions: the value at which it goes on without, else an error; None: any

    @model_validator(mode="before")
    @classmethod
    def _leave_out_retired(cls, values: Any) -> Any:
        """A run that an earlier version wrote names every setting, these among them."""
        if not isinstance(values, dict) or not cls.retired.keys() & values.keys():
            return values
        for name, without in cls.retired.items():
            if name in values and without is not None and values[name] != without:
                raise ValueError(f"{name} = {values[name]!r} is a setting of earlier versions; leave it out (CHANGELOG.md)")
        return {name: value for name, value in values.items() if name not in cls.retired}


class Stage(Section):
    """What changes from a share of the run's horizon on, or once so many samples were made, whatever the horizon."""

    at: Fraction | None = None
    samples: Many | None = None

    @model_validator(mode="after")
    def _begins(self) -> Self:
        if (self.at is None) == (self.samples is None):
            raise ValueError("a stage begins `at` a share of the horizon or after so many `samples`; give one of the two")
        return self

    @model_serializer(mode="wrap")
    def _plain(self, whole: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Without the one that is not given, as older azqs read and TOML can write it."""
        return {name: value for name, value in whole(self).items() if value is not None}

    def begun(self, progress: float, samples: int) -> bool:
        """Whether it has begun in a run with this share of its horizon and so many samples behind it."""
        return progress >= self.at if self.at is not None else samples >= (self.samples or 0)


def ascending(stages: tuple[StageT, ...]) -> tuple[StageT, ...]:
    """The stages, in the order of the run; ValueError where they are not."""
    for name in ("at", "samples"):
        begins = [getattr(stage, name) for stage in stages]
        if None in begins and any(begin is not None for begin in begins):
            raise ValueError("its stages begin some `at` a share of the horizon, some after so many `samples`; take one for all")
        if None not in begins and any(later <= sooner for sooner, later in itertools.pairwise(begins)):
            raise ValueError(f"its stages are not in the order of the run; let `{name}` grow from one to the next")
    return stages


def explain(error: ValidationError, source: object) -> str:
    """One line that names each wrong key, and where it may come from."""
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in item["loc"]) or "(top level)"
        what = "unknown key" if item["type"] == "extra_forbidden" else item["msg"]
        problems.append(f"{key}: {what}")
    return f"configuration ({source}, environment or --set) is wrong: {'; '.join(problems)}; `azq config show` lists every key"


def first_wrong(error: ValidationError) -> str:
    """Where the first wrong value of a file is, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return ": ".join(filter(None, (place, first["msg"].removeprefix("Value error, "))))
