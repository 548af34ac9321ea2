"""`azq profile`: where the time of a run's processes goes, from what the heartbeats of a fleet say."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from azq.bus.redis import RedisBus
from azq.config import Config
from azq.console.table import tabled
from azq.errors import NotFound
from azq.host import brokers
from azq.phases import CPU, DEVICE, OF_ROLE, WALL, merged, of_heartbeat, part
from azq.status.observe import read_workers
from azq.wire.messages import Heartbeat

EVERY_S = 1.0
T = TypeVar("T")


def profile_run(config: Config, run: str, seconds: float) -> tuple[RoleProfile, ...]:
    """Where the time of a running fleet goes, over `seconds`. Raises as `profile_of`."""
    with contextlib.closing(RedisBus(brokers.open_control(config)[1])) as bus:
        return profile_of(looks(partial(read_workers, bus), seconds), run)


def looks(sample: Callable[[], T], seconds: float, wait: Callable[[float], object] = time.sleep) -> list[T]:
    """What `sample` returns each second: as many looks as seconds, at least one."""
    results = [sample()]
    for _ in range(round(seconds / EVERY_S) - 1):
        wait(EVERY_S)
        results.append(sample())
    return results


Look = Sequence[Heartbeat]


@dataclass(frozen=True, slots=True)
class Row:
    """One phase of one role."""

    phase: str
    wall_share: float  # mean over the role's processes
    cpu_cores: float  # summed over them
    cpu_share: float  # of the role's CPU
    device_share: float | None  # of a GPU's time; None where no process has one


@dataclass(frozen=True, slots=True)
class RoleProfile:
    """Where a role's time goes; rows in the order of `azq.phases`, phases without time left out."""

    role: str
    processes: int
    cpu_cores: float
    rows: tuple[Row, ...]


def concerns(beat: Heartbeat, run: str) -> bool:
    """Whether a process works for the run and says where its time goes."""
    return beat.role in OF_ROLE and (beat.run == run or run in beat.weight_versions) and bool(of_heartbeat(beat.rates))


def profile_of(looks: Sequence[Look], run: str) -> tuple[RoleProfile, ...]:
    """The roles that work for the run; figures are means over looks, a heartbeat that was seen before counts once.

    Raises `NotFound` where no process works for it.
    """
    figures: dict[str, dict[str, dict[int, dict[str, float]]]] = {role: {} for role in OF_ROLE}
    for sample in looks:
        for beat in sample:
            if concerns(beat, run):
                figures[beat.role].setdefault(beat.worker, {})[beat.sent_ms] = of_heartbeat(beat.rates)
    if not any(figures.values()):
        raise NotFound(f"no live process works for run {run!r}; `azq status` lists the runs, `azq up --run {run}` starts one")
    return tuple(_role(role, [_mean(list(beats.values())) for beats in workers.values()]) for role, workers in figures.items() if workers)


def as_text(profiles: Sequence[RoleProfile]) -> str:
    """The table for people."""
    lines = []
    for profile in profiles:
        many = f"{profile.processes} process{'' if profile.processes == 1 else 'es'}"
        rows = [
            (
                f"  {row.phase}",
                *(f"{share:.1%}" for share in (row.wall_share, row.cpu_share)),
                f"{row.cpu_cores:.2f}",
                "" if row.device_share is None else f"{row.device_share:.1%}",
            )
            for row in profile.rows
        ]
        lines += [f"{profile.role}: {many}, {profile.cpu_cores:.2f} cores", *tabled(rows, "  phase", "#wall", "#CPU", "#cores", "#GPU")]
    return "\n".join(lines)


def _mean(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for figure in figures for name in figure)
    return {name: sum(figure.get(name, 0.0) for figure in figures) / len(figures) for name in names}


def _role(role: str, workers: Sequence[dict[str, float]]) -> RoleProfile:
    figures = merged(workers)
    wall, cpu, device = (defaultdict(float, part(figures, prefix)) for prefix in (WALL, CPU, DEVICE))
    cores, gpu = sum(cpu.values()), bool(device)
    order = [*OF_ROLE[role], *(phase for phase in wall if phase not in OF_ROLE[role])]
    rows = tuple(
        Row(phase, wall[phase], cpu[phase], cpu[phase] / cores if cores else 0.0, device[phase] if gpu else None)
        for phase in order
        if wall[phase] > 0 or cpu[phase] > 0
    )
    return RoleProfile(role, len(workers), cores, rows)
