"""`azq sim --until`: a simulation stands at one event, in a debugger where a person is there, else it prints its state and goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from traceback import extract_stack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azq.parts.sim.simulation import SeedRun

FRAMES, MOST = 14, 300  # of the stack; characters of a key's value


def stop(sim: SeedRun) -> None:
    """Called within the process whose event it is: a debugger sees its frames above this one."""
    sim.state = list(state(sim))
    if sys.stdin.isatty():
        print(*sim.state, sep="\n", file=sys.stderr)  # noqa: T201
        breakpoint()  # `up` leads to the process; `sim` is everything


def state(sim: SeedRun) -> Iterator[str]:
    """Event, stack, processes, what the broker holds, messages, disk."""
    world, space = sim.world, sim.network.broker.keys
    yield f"at event {world.lines[-1]}"
    for frame in [frame for frame in extract_stack() if "/parts/sim/" not in frame.filename][-FRAMES:]:
        yield f"  {frame.filename}:{frame.lineno} {frame.name}: {frame.line}"
    for actor in world.actors:
        frozen = f"frozen until {actor.frozen_until_ns / 1e9:.3f} s" if actor.frozen_until_ns > world.now_ns else "runs"
        yield f"process {actor.owner}: {frozen if actor.running and not actor.dead else 'is dead'}"
    for key, value in sorted(space.values.items()):
        yield f"key {key.decode()}: {str(value)[:MOST]}"
    for message in sim.delivery.messages:
        yield f"message of job {message.job_id}, attempt {message.attempt}: visible from {message.visible_ns / 1e9:.3f} s"
    for path in sorted(sim.site.segments.iterdir()):
        yield f"file {path.name}: {path.stat().st_size} bytes"
