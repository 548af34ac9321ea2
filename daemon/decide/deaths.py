"""Deaths that no supervisor reported, as under systemd: heartbeats that stop, and processes that replace them. Pure.

All times are those of the daemon's looks: no clock of another host is asked.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from azq.status.conditions import WITHIN_S, CrashLoop, Died
from azq.wire.machines import ProcessDeath
from azq.wire.messages import Heartbeat
from daemon.decide.actions import ReportCrashLoop

LEFT = 0.6  # of a heartbeat's life: one that is gone sooner was taken away by who left


Place = tuple[str, str, str, tuple[str, ...]]  # role, host, run, queues


@dataclass(frozen=True, slots=True)
class Life:
    """A process, and how it was seen."""

    beat: Heartbeat  # the newest
    name: str  # kept by the process that replaces it
    first_ms: int  # when it was seen first
    renewed_ms: int  # when its heartbeat was seen to be a new one last
    gone: bool = False
    heir: bool = False  # it came in the place of another

    @property
    def place(self) -> Place:
        """What somebody in its place has in common with it."""
        return self.beat.role, self.beat.host, self.beat.run, self.beat.queues


Lives = Mapping[str, Life]  # by worker


def lives(before: Lives, beats: Sequence[Heartbeat], now_ms: int, life_ms: float) -> dict[str, Life]:
    """The lives as of this look, those that ended in the last ten minutes among them; who took his heartbeat away is not."""
    there = {beat.worker: beat for beat in beats}
    now: dict[str, Life] = {}
    for worker, life in before.items():
        if (beat := there.get(worker)) is not None:
            now[worker] = replace(life, beat=beat, renewed_ms=now_ms if beat.sent_ms != life.beat.sent_ms else life.renewed_ms, gone=False)
        elif (life.gone or now_ms - life.renewed_ms >= LEFT * life_ms) and now_ms - life.renewed_ms < WITHIN_S * 1000:
            now[worker] = replace(life, gone=True)
    taken: dict[Place, set[str]] = {}
    for life in now.values():
        taken.setdefault(life.place, set()).add(life.name)
    for worker, beat in there.items():
        if worker not in now:
            new = Life(beat, "", now_ms, now_ms)
            name = _free_name(beat.role, taken.setdefault(new.place, set()))
            taken[new.place].add(name)
            now[worker] = replace(new, name=name)
    return now


def _free_name(role: str, taken: Container[str]) -> str:
    return next(name for number in count(1) if (name := role if number == 1 else f"{role}-{number}") not in taken)


def deaths(now: Lives, reported: Iterable[Died]) -> tuple[dict[str, Life], list[ProcessDeath]]:
    """The lives without those in whose place another process came, which has their name now; and their deaths, unless `reported`."""
    left, known_pids = dict(now), {(died.process.host, died.process.pid) for died in reported}
    heirs: dict[Place, list[str]] = {}
    for worker, life in sorted(now.items(), key=lambda entry: entry[1].first_ms):
        if not life.heir:
            heirs.setdefault(life.place, []).append(worker)
    unreported = []
    for worker, life in sorted(now.items(), key=lambda entry: entry[1].renewed_ms):
        heir = next((heir for heir in heirs.get(life.place, ()) if now[heir].first_ms > life.renewed_ms), None) if life.gone else None
        if heir is None:
            continue
        heirs[life.place].remove(heir)
        left[heir] = replace(now[heir], name=left[worker].name, heir=True)
        del left[worker]
        if (life.beat.host, life.beat.pid) not in known_pids:
            unreported.append(ProcessDeath(left[heir].name, life.beat.host, life.beat.pid, life.beat.run, "", ""))
    return left, unreported


def crash_reports(loops: Iterable[CrashLoop]) -> list[ReportCrashLoop]:
    """Each as a condition, which stays the same one while more deaths come."""
    return [ReportCrashLoop(loop.run, f"{loop.name}@{loop.host}", str(loop)) for loop in loops]
