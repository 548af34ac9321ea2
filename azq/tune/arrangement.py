"""How self-play is spread over a machine, and what lies near a given way. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from azq.config import RunSections

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
MOST_LAYOUTS = 6  # of processes and threads, those nearest to what is set
MOST = 2**20  # of games, as the settings have it
MOST_GROUPS = 4  # that are worth a look where fewer are set

#: the setting that each part of an arrangement is
SETTINGS: Mapping[str, tuple[str, str]] = {
    "processes": ("worker", "concurrency"),
    "threads": ("selfplay", "threads"),
    "games": ("selfplay", "games_in_flight"),
    "within_ms": ("selfplay", "answer_within_ms"),
    "groups": ("selfplay", "groups"),
    "leaves": ("search", "leaves_per_step"),
}


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One way: so many processes of so many threads, each with so many games in so many groups, and leaves of a tree in a step."""

    processes: int
    threads: int
    games: int  # at most, of one process
    within_ms: float  # that an evaluation may take before games become fewer; 0: they never do
    groups: int
    leaves: int

    @staticmethod
    def of(sections: RunSections, processes: int) -> Arrangement:
        selfplay = sections.selfplay
        games, within_ms = selfplay.games_in_flight, selfplay.answer_within_ms
        return Arrangement(processes, selfplay.threads, games, within_ms, selfplay.groups, sections.search.leaves_per_step)

    def sections(self) -> dict[str, dict[str, Any]]:
        """The settings of a run that make it so."""
        return {name: values for name, values in self.changes(None).items() if name in RunSections.model_fields}

    def changes(self, before: Arrangement | None) -> dict[str, dict[str, Any]]:
        """The settings that differ from those of `before`; all of them without it."""
        found: dict[str, dict[str, Any]] = {}
        old = asdict(before) if before else {}
        for name, value in asdict(self).items():
            if name not in old or old[name] != value:
                section, key = SETTINGS[name]
                found.setdefault(section, {})[key] = value
        return found

    def __str__(self) -> str:
        games = f"{self.games} games" + (f" within {self.within_ms:g} ms" if self.within_ms else "")
        return f"{self.processes} x {self.threads} threads, {games}, {self.groups} groups, {self.leaves} leaves"


@dataclass(frozen=True, slots=True)
class Axis:
    """What is varied at once, everything else left as it is."""

    name: str
    others: Callable[[Arrangement], Sequence[Arrangement]]


def axes_of(cores: int) -> tuple[Axis, ...]:
    """Those that change nothing of what is searched, in the order in which they are looked at."""
    return Axis("processes and threads", lambda now: layouts(now, cores)), Axis("games at once", games_at_once), Axis("groups", groups)


def leaves_axis(num_simulations: int) -> Axis:
    """Leaves of a tree in a step, which change what is searched."""
    return Axis("leaves a step", lambda now: [replace(now, leaves=count) for count in _around(now.leaves, num_simulations)])


def layouts(now: Arrangement, cores: int) -> list[Arrangement]:
    """Other processes and threads that the cores bear, the nearest ones."""
    room = max(cores, now.processes * now.threads)
    found = {
        (processes, threads)
        for processes in {1, *_around(now.processes, room), now.processes}
        for threads in {1, *_around(now.threads, room), now.threads}
        if processes * threads <= room
    }
    found -= {(now.processes, now.threads)}

    def distance(layout: tuple[int, int]) -> tuple[float, tuple[int, int]]:
        processes, threads = layout
        return abs(math.log2(processes / now.processes)) + abs(math.log2(threads / now.threads)), layout

    return [replace(now, processes=processes, threads=threads) for processes, threads in sorted(found, key=distance)[:MOST_LAYOUTS]]


def games_at_once(now: Arrangement) -> list[Arrangement]:
    """Fewer and more of them: by the time that an evaluation may take where that decides, else by their number."""
    if now.within_ms:
        return [replace(now, within_ms=value) for value in (now.within_ms / 2, 2 * now.within_ms, 4 * now.within_ms, 0.0)]
    return [replace(now, games=count) for count in _around(now.games, MOST)]


def groups(now: Arrangement) -> list[Arrangement]:
    near = {*range(1, MOST_GROUPS), now.groups - 1, now.groups + 1} - {0, now.groups}
    return [replace(now, groups=count) for count in sorted(near) if count <= now.games]


def _around(value: int, most: int) -> Iterator[int]:
    """Values a quarter to four times as large, other than itself."""
    near = {round(factor * value) for factor in FACTORS} - {value}
    return (each for each in sorted(near) if 1 <= each <= most)
