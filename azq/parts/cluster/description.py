"""A cluster as its file says it: machines by kind, what each is for, what it may cost. Pure but for reading files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from azq.config import RUN_NAME_PATTERN, RunSections, merge, parse_overrides, parse_run
from azq.config.base import first_wrong
from azq.config.loading import read_toml
from azq.errors import ConfigError
from azq.presets import preset
from azq.prices import catalogue

Role = Literal["broker", "daemon", "learner", "rank", "inference", "selfplay", "eval", "gateway", "store", "metrics"]
Money = Annotated[float, Field(ge=0.0, le=1e9)]
Hours = Annotated[float, Field(gt=0.0, le=8784.0)]
Count = Annotated[int, Field(ge=0, le=100_000)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
Word = Annotated[str, Field(pattern=r"^\S*$")]
Line = Annotated[str, Field(pattern=r"^[^\r\n]+$")]
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "{host}", "{command}")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MachineKind(_Part):
    """What one machine has and costs; a `service` is a provider's, on which nothing of azq runs."""

    provider: Literal["own", "aws"] = "own"
    service: Literal["", "broker", "store", "metrics"] = ""
    per_hour: Money | None = None
    as_of: date | None = None  # of the price
    vcpus: Count = 0
    memory_gb: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    gpus: Count = 0
    gpu: str = ""
    gpu_memory_gb: Annotated[float, Field(ge=0.0, le=1e4)] = 0.0
    network_gbps: Annotated[float, Field(ge=0.0, le=1e5)] = 0.0


class MachineGroup(_Part):
    """Machines of one kind that do the same."""

    kind: str
    count: Annotated[int, Field(gt=0, le=10_000)] = 1
    roles: Annotated[tuple[Role, ...], Field(min_length=1)]
    hosts: tuple[str, ...] = ()  # their addresses, where they stand already: [USER@]ADDRESS
    concurrency: Annotated[int, Field(ge=0, le=1024)] = 0  # self-play jobs at once; 0: as many as suit the machine
    spot: bool = False  # the provider may take them back

    @model_validator(mode="after")
    def _sound(self) -> MachineGroup:
        if self.hosts and len(self.hosts) != self.count:
            raise ValueError(f"hosts names {len(self.hosts)} machines, count says {self.count}")
        return self


class Budget(_Part):
    """What ends the cluster: whatever comes first."""

    hours: Hours | None = None
    money: Money | None = None


class Stay(_Part):
    """How long such a run takes, from and to."""

    title: str
    hours: tuple[Hours, Hours]


class Reaching(_Part):
    """How hosts are reached."""

    command: tuple[str, ...] = SSH  # {command}: azq's, as one word for a shell; without it its words follow
    azq: Annotated[tuple[str, ...], Field(min_length=1)] = ("azq",)  # what azq is called there


class SlurmOptions(_Part):
    """Options of `sbatch` for a group's jobs; empty ones are left to Slurm."""

    partition: Word = ""
    account: Word = ""
    qos: Word = ""
    constraint: Word = ""
    time: Word = ""  # after which a job drains and is queued again: D-HH:MM:SS
    gres: Word = ""  # where gpu:N, N of the machine's kind, is not what a GPU is called
    options: tuple[Annotated[str, Field(pattern=r"^--[^\r\n]+$")], ...] = ()
    setup: tuple[Line, ...] = ()  # lines of bash before azq starts: module load, activate
    requeue: bool = True
    drain_s: Annotated[int, Field(ge=10, le=65_535)] = 180  # before the time is up; longer than a learner takes for its last checkpoint


class Slurm(SlurmOptions):
    """The same for all groups, and where a group has its own."""

    groups: dict[Name, SlurmOptions] = {}

    def of(self, group: str) -> SlurmOptions:
        own = self.groups.get(group, SlurmOptions())
        return self.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


class FirstRun(_Part):
    """The run that the cluster is for; called as its game is, unless it has a name."""

    game: str = "connect_four"
    name: Annotated[str, Field(pattern=RUN_NAME_PATTERN)] = "connect_four"
    preset: str = ""
    settings: tuple[str, ...] = ()  # as `--set` takes them
    until: str = ""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        return {"name": values["game"], **values} if isinstance(values, dict) and "game" in values else values

    def sections(self) -> RunSections:
        """Its settings as a daemon will have them; raises `ConfigError`."""
        return parse_run(merge(preset(self.game, self.preset), parse_overrides(self.settings)), f"run {self.name}")

    def created_by(self) -> tuple[str, ...]:
        """The command that creates it at a daemon, without what is as by default."""
        options = {"--game": self.game, "--preset": self.preset, "--until": self.until}
        given = [part for option, value in options.items() if value for part in (option, value)]
        return ("azq", "runs", "create", self.name, *given, *(part for text in self.settings for part in ("--set", text)))


class Cluster(_Part):
    """Machines by the name of their group, and kinds by theirs: those of azq's catalogue and the file's own."""

    name: Name
    hours: Hours = 1.0
    currency: str
    machines: Annotated[dict[Name, MachineGroup], Field(min_length=1)]
    kinds: dict[str, MachineKind]
    budget: Budget = Budget()
    scenarios: tuple[Stay, ...] = ()
    image: Annotated[str, Field(pattern=r"^([^\s@]+@sha256:[0-9a-f]{64})?$")] = (
        ""  # of containers; empty: as it was built here, never pulled
    )
    folder: str = "~/azq"  # on each host: runs, settings, logs
    port: Annotated[int, Field(gt=0, lt=65_000)] = 6379  # of the first broker; the others take those behind it
    runs: tuple[FirstRun, ...] = ()  # further ones
    settings: dict[str, dict[str, Any]] = {}  # of all hosts, by section
    ssh: Reaching = Reaching()
    slurm: Slurm = Slurm()
    run: FirstRun = FirstRun()

    @model_validator(mode="after")
    def _priced(self) -> Cluster:
        for name, group in self.machines.items():
            if (kind := self.kinds.get(group.kind)) is None:
                raise ValueError(f"machines.{name}.kind: {group.kind!r} is not in the catalogue; describe it in [kinds.{group.kind!r}]")
            if kind.service and group.hosts:
                raise ValueError(f"machines.{name}.hosts: {group.kind} is a service, on which nothing of azq runs")
            if kind.service and set(group.roles) != {kind.service}:
                raise ValueError(f"machines.{name}.roles: {group.kind} is a service for {kind.service!r} and nothing else")
        if unknown := sorted(self.slurm.groups.keys() - self.machines.keys()):
            raise ValueError(f"slurm.groups.{unknown[0]}: there is no [machines.{unknown[0]}]")
        return self

    def wanted_runs(self) -> tuple[FirstRun, ...]:
        """The runs that are started: `[run]`, and each `[[runs]]`; where only the latter are named, they alone."""
        return (self.run, *self.runs) if "run" in self.model_fields_set or not self.runs else self.runs

    def of_role(self, role: Role) -> dict[str, MachineGroup]:
        """The groups that have a role."""
        return {name: group for name, group in self.machines.items() if role in group.roles}

    def total(self, role: Role, part: Literal["gpus", "vcpus"]) -> int:
        """GPUs or cores of all machines that have a role."""
        return sum(group.count * int(getattr(self.kinds[group.kind], part)) for group in self.of_role(role).values())


def as_variables(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Settings of hosts as variables of their environment."""
    return {
        f"AZQ_{section.upper()}__{key.upper()}": value if isinstance(value, str) else json.dumps(value)
        for section, values in sections.items()
        for key, value in values.items()
    }


def read_cluster(path: Path, smallest: bool = False) -> Cluster:
    """The cluster of a TOML file; `smallest`: with one machine of each group. Raises `ConfigError` naming place and remedy."""
    return cluster_of(read_toml(path), str(path), smallest)


def cluster_of(data: Mapping[str, Any], source: str, smallest: bool = False) -> Cluster:
    """A cluster from a file's values."""
    prices = catalogue()
    head = {"currency": prices["currency"], **data.get("cluster", {})}
    parts = {name: value for name, value in data.items() if name not in ("cluster", "kinds")}
    try:
        cluster = Cluster(**{**head, **parts, "kinds": {**prices["kinds"], **data.get("kinds", {})}})
    except (TypeError, ValidationError) as error:
        raise ConfigError(f"{source}: {first_wrong(error) if isinstance(error, ValidationError) else error}") from None
    return _smallest(cluster) if smallest else cluster


def _smallest(cluster: Cluster) -> Cluster:
    machines = {name: group.model_copy(update={"count": 1, "hosts": group.hosts[:1]}) for name, group in cluster.machines.items()}
    return cluster.model_copy(update={"machines": machines})
