"""Heartbeats to a table: by role and phase, shares of wall time and CPU. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from azq.phases import CPU, DEVICE, OF_ROLE, WALL, merged, of_heartbeat, part
from azq.wire.messages import Heartbeat

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
    """Where a role's time goes; rows in the order of `azq.phases`, phases that nobody was in left out."""

    role: str
    processes: int
    cpu_cores: float
    rows: tuple[Row, ...]


def concerns(beat: Heartbeat, run: str) -> bool:
    """Whether a process works for the run and says where its time goes."""
    return beat.role in OF_ROLE and (beat.run == run or run in beat.weight_versions) and bool(of_heartbeat(beat.rates))


def profile_of(looks: Sequence[Look], run: str) -> tuple[RoleProfile, ...]:
    """The roles that said anything of the run; figures are means over looks, a heartbeat that was seen before counts once."""
    said: dict[str, dict[str, dict[int, dict[str, float]]]] = {role: {} for role in OF_ROLE}
    for look in looks:
        for beat in look:
            if concerns(beat, run):
                said[beat.role].setdefault(beat.worker, {})[beat.sent_ms] = of_heartbeat(beat.rates)
    return tuple(_role(role, [_mean(list(beats.values())) for beats in workers.values()]) for role, workers in said.items() if workers)


def profile_of_shares(by_role: Mapping[str, dict[str, float]]) -> tuple[RoleProfile, ...]:
    """One process a role, from its figures as a heartbeat has them."""
    return tuple(_role(role, [of_heartbeat(shares)]) for role, shares in by_role.items() if of_heartbeat(shares))


def as_text(profiles: Sequence[RoleProfile]) -> str:
    """The table for people."""
    lines = []
    for profile in profiles:
        many = f"{profile.processes} process{'' if profile.processes == 1 else 'es'}"
        lines += [f"{profile.role}: {many}, {profile.cpu_cores:.2f} cores", f"  {'phase':<12}{'wall':>8}{'CPU':>8}{'cores':>8}{'GPU':>8}"]
        for row in profile.rows:
            device = "" if row.device_share is None else f"{row.device_share:>8.1%}"
            lines.append(f"  {row.phase:<12}{row.wall_share:>8.1%}{row.cpu_share:>8.1%}{row.cpu_cores:>8.2f}{device}")
    return "\n".join(lines)


def _mean(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in figures for name in each)
    return {name: sum(each.get(name, 0.0) for each in figures) / len(figures) for name in names}


def _role(role: str, workers: Sequence[dict[str, float]]) -> RoleProfile:
    figures = merged(workers)
    wall, cpu, device = (part(figures, prefix) for prefix in (WALL, CPU, DEVICE))
    cores = sum(cpu.values())
    order = [*OF_ROLE[role], *(phase for phase in wall if phase not in OF_ROLE[role])]
    rows = tuple(
        Row(
            phase,
            wall.get(phase, 0.0),
            cpu.get(phase, 0.0),
            cpu.get(phase, 0.0) / cores if cores else 0.0,
            device.get(phase, 0.0) if device else None,
        )
        for phase in order
        if wall.get(phase, 0.0) > 0 or cpu.get(phase, 0.0) > 0
    )
    return RoleProfile(role, len(workers), cores, rows)
