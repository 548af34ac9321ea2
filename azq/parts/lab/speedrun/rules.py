"""Tracks, classes of machines, entries and logs as their files say them, and what makes a record. Pure but for reading files."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from azq.config.loading import toml_value
from azq.errors import ConfigError, NotFound, meant
from azq.stats import rank_sum_chance

LEAST_SEEDS = 5  # of an entry: with four against four a single order of the costs would be rare enough
ALPHA = 0.01  # how often an entry that is no faster is called a record, at most
ENTRY, LOG, RUN = "entry.toml", "log.json", "run"  # in an entry's folder; in one a seed; the run beside it
SLACK, READ_S = 1.1, 3.0  # by which a clock that is read each second may be off: in CPU-seconds a second, and at a row
SHIPPED = resources.files("azq.parts.lab.speedrun")

Clock = list[tuple[float, float]]  # seconds and CPU-seconds of all processes since the start


class MachineClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machines whose costs are compared."""

    measure: Literal["cpu_s", "seconds"]  # of all processes; by the clock
    cores: int | None = None  # None: any
    gpus: int | None = None

    def misfit(self, cores: int, gpus: int) -> str:
        """What of a machine is of another class; empty where nothing is."""
        there = {"cores": (self.cores, cores), "GPUs": (self.gpus, gpus)}
        return next((f"{has} {what}, and the class has {wants}" for what, (wants, has) in there.items() if wants not in (None, has)), "")


class Track(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is learned, and how far."""

    title: str
    game: str
    exam: str  # who grades positions: solve, solver, gnubg:<plies>; or an opponent: gtp:<command>
    target: float  # at most: the share of errors, or of points lost; of gnubg's positions the mean loss in the game's unit
    minutes: float
    num_simulations: int = 400
    count: int = 600  # positions, or games
    opening_plies: int = 0  # of games
    params: dict[str, int | float | str | bool] = {}


class SpeedrunRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them by name."""

    classes: dict[str, MachineClass]
    tracks: dict[str, Track]

    def places(self, entry: SpeedrunEntry) -> tuple[Track, MachineClass]:
        """Where an entry runs. Raises `ConfigError`."""
        for what, name, there in (("track", entry.track, self.tracks), ("class", entry.machines, self.classes)):
            if name not in there:
                raise ConfigError(f"the entry's {what} {name!r} is none of {', '.join(there)}{meant(name, there)}")
        return self.tracks[entry.track], self.classes[entry.machines]


class SpeedrunEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"machines": "class"}):
    """How to learn a track on a class of machines, and what its verified seeds cost."""

    track: str
    machines: str
    author: str
    date: str
    new: str  # what no other entry does
    preset: str = ""
    settings: dict[str, dict[str, Any]] = {}  # over it, by section
    costs: list[float] = []  # one a seed; none: it was not run on this class
    note: str = ""  # figures of single runs, and where they stand

    @property
    def cost(self) -> str:
        """For people."""
        return (
            f"median {median(self.costs):,.0f} of {len(self.costs)}"
            if self.costs
            else "; ".join(filter(None, ("not run on this class", self.note)))
        )

    def overrides(self, params: Mapping[str, Any], seed: int) -> list[str]:
        """The settings of a seed as `--set` takes them."""
        run = {**{f"params.{name}": value for name, value in params.items()}, "seed": seed}
        sections = {**self.settings, "run": {**self.settings.get("run", {}), **run}}
        return [f"{name}.{key}={toml_value(value)}" for name, values in sections.items() for key, value in values.items()]


class Graded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A version that was examined, and what the run had cost when it was published."""

    version: int
    step: int
    seconds: float
    cpu_s: float
    loss: float  # mean of the exam


class SeedLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One seed from nothing to its target, or to where it ended."""

    entry: SpeedrunEntry
    seed: int
    processor: str
    cores: int
    gpus: list[str]
    commit: str
    clock: Clock
    rows: list[Graded]
    losses: list[float]  # of the last row, one a position or game
    ended: str  # why it did not come to its target; empty: it did
    files: dict[str, str]  # sha256 by name, of the run beside it
    seal: str = ""

    def sealed(self) -> SeedLog:
        """With the hash of all else."""
        bare = msgspec.json.encode(msgspec.structs.replace(self, seal=""), order="deterministic")
        return msgspec.structs.replace(self, seal=hashlib.sha256(bare).hexdigest())


StructT = TypeVar("StructT", bound=msgspec.Struct)


def read(kind: type[StructT], file: Path | Traversable) -> StructT:
    """What a file of TOML or JSON says. Raises `ConfigError` naming what is wrong."""
    try:
        data = file.read_text("utf-8")
        return msgspec.json.decode(data, type=kind) if file.name.endswith(".json") else msgspec.convert(tomllib.loads(data), kind)
    except (OSError, ValueError) as error:  # those of msgspec and tomllib are ValueErrors
        raise ConfigError(f"{file} cannot be read: {error}; docs/speedrun.md says how an entry is written") from None


def rules_of(file: Path | None = None) -> SpeedrunRules:
    """Those of a file, else azq's."""
    return read(SpeedrunRules, file or SHIPPED / "tracks.toml")


def shipped() -> dict[str, SpeedrunEntry]:
    """azq's entries by name."""
    files = {file.name.removesuffix(".toml"): file for file in (SHIPPED / "entries").iterdir() if file.name.endswith(".toml")}
    return {name: read(SpeedrunEntry, file) for name, file in sorted(files.items())}


def entry_named(name: str) -> SpeedrunEntry:
    """One of azq's entries, or that of a file. Raises `NotFound`, `ConfigError`."""
    entries = shipped()
    if name not in entries and not name.endswith(".toml"):
        raise NotFound(f"no entry {name!r}{meant(name, entries)}; there are {', '.join(entries)}, or name a file of TOML")
    return entries.get(name) or read(SpeedrunEntry, Path(name))


def at(clock: Clock, seconds: float) -> float:
    """CPU-seconds at a moment."""
    times, spent = np.array(clock).T
    return float(np.interp(seconds, times, spent))


def fault(log: SeedLog, track: Track, kind: MachineClass) -> str:
    """What does not hold by the log alone, in one sentence; empty where all does."""
    first, (seconds, cpu_s) = next((row for row in log.rows if row.loss <= track.target), None), np.array(log.clock).T
    if log.seal != log.sealed().seal:
        return f"{LOG} was edited: its seal is not that of its lines"
    if log.ended:
        return f"its arm did not come to the target: {log.ended}"
    if misfit := kind.misfit(log.cores, len(log.gpus)):
        return f"its machine is of another class: {log.processor} with {misfit}"
    if first is None or first is not log.rows[-1] or len(log.losses) < track.count or abs(np.mean(log.losses) - first.loss) > 1e-4:
        return f"by its log no version is at {track.target:g}, or not the one that it claims"
    if np.any(np.diff(seconds) <= 0) or np.any(np.diff(cpu_s) < 0) or cpu_s[-1] > SLACK * log.cores * (seconds[-1] + READ_S):
        return f"its clock is not one of {log.cores} cores"
    if not 0 < first.seconds <= seconds[-1] + READ_S or abs(at(log.clock, first.seconds) - first.cpu_s) > READ_S * log.cores:
        return f"it claims {first.cpu_s:,.0f} CPU-seconds, and its clock says {at(log.clock, first.seconds):,.0f}"
    return ""


def judgement(costs: Sequence[float], entry: SpeedrunEntry, entries: Mapping[str, SpeedrunEntry]) -> tuple[bool, float | None, str]:
    """Whether costs are a record, by which chance, and in words: against the standing one of the same track and class."""
    what, place = f"median {median(costs):,.1f} of {len(costs)} seeds", (entry.track, entry.machines)
    rivals = {name: other.costs for name, other in entries.items() if other.new != entry.new and (other.track, other.machines) == place}
    whole = [(median(theirs), name) for name, theirs in rivals.items() if len(theirs) >= LEAST_SEEDS]
    if not whole:
        return True, None, f"{what}: the first of its track and class"
    best, name = min(whole)
    chance = rank_sum_chance(costs, rivals[name])
    beside = f"{what} against {best:,.1f} of {name}, p = {chance:.4f}"
    return chance < ALPHA, chance, beside if chance < ALPHA else f"{beside}: no record, which takes p < {ALPHA:g}"
