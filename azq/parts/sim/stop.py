"""`azq sim --until`: a simulation stands at one event, in a debugger where a person is there, else it tells its state and goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from traceback import extract_stack
from typing import TYPE_CHECKING

from azq.parts.sim.actors import RUN
from azq.parts.sim.keyspace import Hash, Scores
from azq.wire import keys

if TYPE_CHECKING:
    from azq.parts.sim.simulation import SeedRun

FRAMES = 14  # of the stack


def stop(sim: SeedRun) -> None:
    """Called within the process whose event it is: a debugger sees its frames above this one."""
    sim.state = list(state(sim))
    if sys.stdin.isatty():
        print(*sim.state, sep="\n", file=sys.stderr)  # noqa: T201
        breakpoint()  # `up` leads to the process; `sim` is everything


def state(sim: SeedRun) -> Iterator[str]:
    """Event, stack, processes, ledger, messages, disk."""
    world, space = sim.world, sim.network.broker.keys
    yield f"at event {world.lines[-1]}"
    for frame in [frame for frame in extract_stack() if "/parts/sim/" not in frame.filename][-FRAMES:]:
        yield f"  {frame.filename}:{frame.lineno} {frame.name}: {frame.line}"
    for actor in world.actors:
        frozen = f"frozen until {actor.frozen_until_ns / 1e9:.3f} s" if actor.frozen_until_ns > world.now_ns else "runs"
        yield f"process {actor.owner}: {frozen if actor.running and not actor.dead else 'is dead'}"
    yield f"ledger: {_text(space.get(keys.ledger(RUN).encode(), Hash))}"
    for number in space.get(keys.jobs(RUN).encode(), Scores):
        job = space.get(keys.job(RUN, number.decode()).encode(), Hash)
        yield f"job {number.decode()}: {_text({name: job.get(name, b'') for name in (b'state', b'attempt', b'owner', b'lease_until_ms')})}"
    for message in sim.delivery.messages:
        yield f"message of job {message.job_id}, attempt {message.attempt}: visible from {message.visible_ns / 1e9:.3f} s"
    for path in sorted(sim.site.segments.iterdir()):
        yield f"file {path.name}: {path.stat().st_size} bytes"


def _text(fields: dict[bytes, bytes]) -> str:
    return " ".join(f"{name.decode()}={value.decode(errors='replace')}" for name, value in fields.items())
