"""What is rehearsed: the faults there are, and one TOML file a drill in `ops/drills`."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from azq.errors import ConfigError, NotFound
from azq.host.systemd.install import assets

if TYPE_CHECKING:
    from azq.parts.lab.drill.system import System

    Injector = Callable[[System, "Scenario", random.Random], "InjectedFault"]

PROCESSES = ("selfplay", "inference", "learner", "daemon")
BROKERS = ("broker-control", "broker-data")
SECOND_BROKER = "broker-data1"  # of a system with several data planes
FSYNC = ("always", "everysec", "no")
PAUSES = 2.0  # the longest pause of any round over the goal for the median, where a file says nothing else
FAULTS: dict[str, tuple[str, ...]] = {}  # fault -> roles that it can hit
INJECTORS: dict[str, Injector] = {}  # fault -> what makes it


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault to one part, and the seconds in which everything is to work again."""

    name: str
    summary: str
    role: str
    fault: str
    within_s: float
    pause_within_s: float  # longest time without a game learned from
    fsync: str = ""  # policy of the control plane's append-only file while it is killed; empty: as it is
    abandoned: str = ""  # games may be abandoned for a reason that holds these words; empty: none may
    settings: tuple[str, ...] = ()  # of a separate system, as after --set; empty: it shares one

    @property
    def loses_search(self) -> bool:
        """Whether it kills what plays at a random moment, so that the search since the last journal write is lost."""
        return self.role == "selfplay" and self.fault in ("kill", "kill-child")


def nothing() -> None:
    """Lifts a fault that ends by itself."""


@dataclass(slots=True)
class InjectedFault:
    """A fault in effect; `lift` ends it after `lasts_s`, or where that is 0 as soon as it has healed."""

    healed: Callable[[], bool]  # whether the part that was hurt works again
    lasts_s: float = 0.0
    lift: Callable[[], None] = nothing
    search_lost_s: float | None = None  # of a killed self-play worker: since its last journal write

    def end(self) -> None:
        """Lifts it, once."""
        lift, self.lift = self.lift, nothing
        lift()


def fault(name: str, *roles: str) -> Callable[[Injector], Injector]:
    """Registers a function that makes the fault of this name once, with the roles that it can hit."""

    def register(injector: Injector) -> Injector:
        FAULTS[name], INJECTORS[name] = roles, injector
        return injector

    return register


def load_all() -> list[Scenario]:
    """Every drill, by name. Raises `ConfigError` naming a file that does not fit."""
    return [parse(path) for path in sorted((assets() / "ops" / "drills").glob("*.toml"))]


def parse(path: Path) -> Scenario:
    try:
        values: dict[str, Any] = {"name": path.stem, **tomllib.loads(path.read_text("utf-8"))}
        values.setdefault("pause_within_s", PAUSES * values["within_s"])
        scenario = msgspec.convert(values, Scenario)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise ConfigError(f"drill {path}: {type(error).__name__}: {error}; it needs summary, role, fault and within_s") from None
    if unknown := values.keys() - {field.name for field in fields(Scenario)}:
        raise ConfigError(f"drill {path}: unknown key {min(unknown)!r}; there are also pause_within_s, fsync, abandoned, settings")
    if scenario.role not in FAULTS.get(scenario.fault, ()):
        raise ConfigError(f"drill {path}: no fault {scenario.fault!r} hits {scenario.role!r}; there are: {FAULTS}")
    if scenario.fsync and (scenario.fsync not in FSYNC or scenario.role != "broker-control"):
        raise ConfigError(f"drill {path}: fsync {scenario.fsync!r} is none of {', '.join(FSYNC)} of broker-control")
    return scenario


def choose(scenarios: list[Scenario], names: str) -> list[Scenario]:
    """Those of a comma-separated list, or `all`; `NotFound` names those there are."""
    wanted = [name.strip() for name in names.split(",")]
    existing = [scenario.name for scenario in scenarios]
    if unknown := [name for name in wanted if name not in (*existing, "all")]:
        raise NotFound(f"no drill {unknown[0]!r}; there are: {', '.join(existing)}, all")
    return [scenario for scenario in scenarios if "all" in wanted or scenario.name in wanted]
