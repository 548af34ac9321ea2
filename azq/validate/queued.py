"""The same run through the real queue: `azq up` with its brokers, daemon, learner and workers, hurt and stopped while it plays."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from dataclasses import dataclass

from azq.bus.redis import RedisBus
from azq.config import RunSections
from azq.drill.system import RUN, System
from azq.errors import NotFound, StateConflict
from azq.status.observe import read_weights
from azq.validate.versions import HOST, LockstepVersion, overrides_of, version_of

PATIENCE_S = 60.0  # for a version
MOMENT_S = 0.4  # a version is played within about so long
PREFIX = "azq-validate-"


@dataclass(frozen=True, slots=True)
class Hardship:
    """What such a run has to bear."""

    workers: int = 2
    kill: bool = False  # a process that plays, infers or learns, while each version is made
    stop: bool = False  # all of it, once, and start it again
    seed: int = 0  # of what is random about it

    def __str__(self) -> str:
        what = [f"{self.workers} workers", *(["kills"] if self.kill else []), *(["a stop"] if self.stop else [])]
        return f"queue with {', '.join(what)}"


def play_queued(sections: RunSections, hardship: Hardship, count: int) -> list[LockstepVersion]:
    """The first `count` versions; raises `EvaluationTimeout` where one does not come, `StateConflict` where a game was given up."""
    with started(sections, hardship) as system:
        rng, stop_at = random.Random(hardship.seed), max(1, count // 2) if hardship.stop else 0
        for number in range(1, count):
            await_version(system, number)
            if hardship.kill:
                system.rest(time.monotonic() + rng.uniform(0.0, MOMENT_S))
                _kill_one(system, rng)
            if number == stop_at:
                system.stop()
                system.start()
        await_version(system, count)
        return versions(system, sections)[:count]


def await_version(system: System, number: int) -> None:
    """Returns once it was published; raises as `play_queued`."""
    system.until(lambda: _has(system, number), f"version {number}", PATIENCE_S)


def versions(system: System, sections: RunSections) -> list[LockstepVersion]:
    """What was published so far, oldest first."""
    events = system.query(lambda client: read_weights(RedisBus(client), RUN, 100_000)) or []
    return [version_of(event, sections) for event in reversed(events)]


def started(sections: RunSections, hardship: Hardship) -> System:
    """A system of its own that plays such a run for the length of a block; its folder goes with it unless something failed."""
    host = [f"inference.{name}={json.dumps(value)}" for name, value in HOST.model_dump(exclude_unset=True).items()]
    overrides = [*overrides_of(sections), *host, f"worker.concurrency={hardship.workers}"]
    return System(None, sections.run.game, overrides, prefix=PREFIX)


def _has(system: System, number: int) -> bool:
    """Whether a version was published."""
    counts = system.counts()
    if counts is not None and counts.abandoned:
        raise StateConflict(f"{counts.abandoned} games were given up, and lockstep goes on without none; see {system.folder}")
    newest = system.query(lambda client: read_weights(RedisBus(client), RUN))
    return bool(newest and newest[0].version >= number)


def _kill_one(system: System, rng: random.Random) -> None:
    found = system.kin.processes()
    playing = system.kin.below(found["selfplay"]) if "selfplay" in found else []
    targets = [*playing, *(victim for role, victim in found.items() if role in ("selfplay", "learner", "inference"))]
    if targets:
        with contextlib.suppress(NotFound):
            system.kin.send(signal.SIGKILL, rng.choice(sorted(targets, key=lambda victim: victim.pid)))
