"""What an operator who does not watch has to know: runs that ended, and deaths that no supervisor reported, as under systemd. Pure.

Deaths follow from heartbeats that stop and processes that replace them, by the times of the daemon's looks: no clock of another host is
asked.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from azq.ledger.types import RunState
from azq.status.conditions import WITHIN_S, Died
from azq.status.state import DesiredRun
from azq.wire.machines import ProcessDeath
from azq.wire.messages import Heartbeat

ENDS = (RunState.FINISHED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class Notice:
    """An event, as it is sent."""

    kind: str  # run.finished, run.failed, condition
    run: str  # "": the whole fleet
    text: str
    at_ms: int


def ends(before: Mapping[str, RunState], runs: Iterable[DesiredRun], now_ms: int) -> list[Notice]:
    """The runs that ended since the look before; what had ended when this daemon first looked is old."""
    ended = [run for run in runs if run.state in ENDS and before.get(run.name, run.state) is not run.state]
    return [Notice(f"run.{run.state}", run.name, f"run {run.name} {run.state}: {run.reason or 'no reason given'}", now_ms) for run in ended]


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
