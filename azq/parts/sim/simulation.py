"""One seed from start to verdict: faults, then healing, then rest, each judged; and what of a failing plan is needed to fail."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from traceback import extract_stack

from azq.ledger.scripts import BODIES
from azq.ledger.types import RunState
from azq.parts.sim.actors import RUN, Site, populate
from azq.parts.sim.books import Kept, broken_leases, games_in, imbalances, is_at_rest, judge, missing_weights, promoted, waiting_jobs
from azq.parts.sim.faults import KINDS, Fault
from azq.parts.sim.network import Delivery, SimulatedNetwork
from azq.parts.sim.world import World
from azq.tracing import TRACES
from azq.wire.messages import SCHEMA

WORKERS = 3
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # what is durable is simulated
AT_A_CALL = ("kill", "freeze")  # faults that meet a process between two of its calls: by the clock alone they meet it mostly at rest
SOON = 20  # calls, at most
LOOK_EVERY_S = 1.0
HEALED_WITHIN_S = 180.0  # after the last fault new games are in the log: a freeze, a message's and a lease's life, strikes
NEW_GAMES = 10
AT_REST_WITHIN_S = 120.0  # after the run was paused, or was given a goal
FRAMES, SHOWN = 14, 300  # where it stops: of the stack; characters of a key's value


@cache
def protocol() -> str:
    """Which courses seeds take: the schema of messages, and a digest of the ledger's rules and of the simulation."""
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return f"{SCHEMA}-{hashlib.sha256(repr((sorted(BODIES.items()), sources)).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class SeedOutcome:
    """What became of a seed."""

    seed: int
    faults: Sequence[Fault]
    simulated_s: float
    games: int
    lost: int
    doubled: int
    stuck: str
    wrong: Sequence[str]
    trace_hash: str
    cpu_s: float
    trace: Sequence[str] = ()

    @property
    def failed(self) -> bool:
        return bool(self.wrong or self.stuck)


class SeedRun:
    """A seed's world with a plan of faults."""

    def __init__(self, seed: int, faults: Sequence[Fault], folder: Path, *, trace: bool = False, until: int = 0) -> None:
        self.seed = seed
        self.faults = faults
        self.world: World = World(seed, trace=trace or until > 0)
        self.world.until, self.world.stop = until, partial(_stop, self)
        self.network: SimulatedNetwork = SimulatedNetwork(self.world)
        self.delivery: Delivery = Delivery(self.network)
        self.site: Site = Site(self.world, self.network, self.delivery, folder, ExitStack())
        self._wrong: list[str] = []

    def run(self, seconds: float) -> SeedOutcome:
        """The whole course, with faults for so long."""
        began = time.process_time()
        if self.world.traces:
            TRACES.start(lambda span: self.world.add_line(f"{span['name']} {span['traceId'][:8]}"), 1.0)
        with self.site.installed:
            self.site.furnish()
            populate(self.site, WORKERS)
            for fault in self.faults:
                self.world.at(fault.at_s, partial(self._do, fault))
            self._go_on(seconds)
            stuck = self._heal() or self._rest()
            self.world.end()
        TRACES.stop()
        record = Kept.read(RUN, self.network.broker.keys, self.site.segments)
        verdict = judge(self.site.books, record, rolled_back=self.network.rolled_back)
        missing = missing_weights(RUN, self.network.broker.keys, self.site.weights)
        stuck, late = ("", verdict.wrong) if self._wrong else (stuck, [*filter(None, [stuck]), *self._broken(), *verdict.wrong, *missing])
        self._break(line for line in late if line not in self._wrong)
        wrong = [line for line in self._wrong if line != stuck]
        cpu_s = time.process_time() - began
        facts = (len(record.log), verdict.lost, verdict.doubled, stuck, wrong, self.world.trace_hash, cpu_s)
        return SeedOutcome(self.seed, self.faults, self.world.monotonic(), *facts, self.world.lines)

    def _do(self, fault: Fault) -> None:
        actor = self.world.actors[fault.pick % len(self.world.actors)]
        self.world.note(f"fault {fault} {actor.name}")
        begin, calls = partial(KINDS[fault.kind][0], self, actor, fault.amount), fault.pick // len(self.world.actors) % SOON
        if fault.kind in AT_A_CALL and calls:
            actor.ahead.append((calls, begin))
        else:
            begin()

    def _break(self, promises: Iterable[str]) -> None:
        """Promises that were seen broken now."""
        for line in promises:
            self._wrong.append(line)
            self.world.note(f"broken {' '.join(line.split())}")

    def _broken(self) -> list[str]:
        """Which promises are broken now; a broker that forgot, and of leases one whose clock was set, prove nothing."""
        network, books, space = self.network, self.site.books, self.network.broker.keys
        lines = [*self.world.crashes, *([] if network.rolled_back else books.wrong), *imbalances(RUN, space)]
        exact = not network.skew_ns and not network.rolled_back
        return lines + broken_leases(RUN, space, books, network.broker_ms) if exact else lines

    def _go_on(self, seconds: float, over: Callable[[], bool] = lambda: False) -> bool:
        """Runs for so long, until it is over or until a promise is broken; whether it is over."""
        end_s = self.world.monotonic() + seconds
        while self.world.monotonic() < end_s and not self._wrong:
            if over():
                return True
            self.world.run(min(end_s, self.world.monotonic() + LOOK_EVERY_S))
            self._break(self._broken())
        return over()

    def _heal(self) -> str:
        """Why games no longer reach the log once nothing goes wrong any more; empty where they do."""
        for actor in self.world.actors:
            actor.ahead.clear()
        self.site.fill_disks(False)
        self.site.repair()
        self.delivery.trouble.clear()
        self.network.sent_away.clear()
        self.site.meddles = False
        if not self._go_on(HEALED_WITHIN_S, lambda: not self.site.deletes):
            return f"the run was not deleted within {HEALED_WITHIN_S:.0f} s after the last fault"
        enough, jobs = games_in(self.site.segments) + NEW_GAMES, waiting_jobs(RUN, self.network.broker.keys)
        over = self._go_on(HEALED_WITHIN_S, lambda: not self._overdue(enough, jobs))
        ends = f"{HEALED_WITHIN_S:.0f} s after the last fault; last ends: {self.world.endings[-2:]}"
        return "" if over else f"{self._overdue(enough, jobs)} within {ends}"

    def _overdue(self, enough: int, jobs: set[tuple[str, bytes]]) -> str:
        """What has not come yet since the last fault, after which these jobs waited; empty where all has."""
        space = self.network.broker.keys
        if games_in(self.site.segments) < enough:
            return f"no {NEW_GAMES} games"
        if jobs & waiting_jobs(RUN, space):
            return "a job was not taken"
        wanted = promoted(RUN, space)[-1]
        behind = [] if self.network.rolled_back else [worker for worker, version in self.site.books.served.items() if version != wanted]
        return f"{behind[0]} did not serve weights {wanted}" if behind else ""

    def _rest(self) -> str:
        """Why a run that is paused, or by every third seed reaches its goal, does not come to rest; empty where it does."""
        self.site.wanted = wanted = RunState.PAUSED if self.seed % 3 else RunState.FINISHED
        rests = self._go_on(AT_REST_WITHIN_S, lambda: is_at_rest(RUN, self.network.broker.keys, wanted))
        return "" if rests else f"not at rest and {wanted} within {AT_REST_WITHIN_S:.0f} s"


def _stop(sim: SeedRun) -> None:
    """At the event of `--until`, within its process: prints it, the stack and what the broker holds; a debugger where a person is there."""
    frames = [frame for frame in extract_stack() if "/parts/sim/" not in frame.filename][-FRAMES:]
    stack = [f"  {frame.filename}:{frame.lineno} {frame.name}: {frame.line}" for frame in frames]
    held = [f"key {key.decode()}: {str(value)[:SHOWN]}" for key, value in sorted(sim.network.broker.keys.values.items())]
    print(f"at event {sim.world.lines[-1]}", *stack, *held, sep="\n", file=sys.stderr)  # noqa: T201
    if sys.stdin.isatty():
        breakpoint()  # `up` leads to the process; `sim` is everything


def simulate(seed: int, faults: Sequence[Fault], seconds: float, *, trace: bool = False, until: int = 0) -> SeedOutcome:
    """A seed with these faults, in a folder that goes with it; with its trace where that is wanted, with its state at an event."""
    with tempfile.TemporaryDirectory(prefix="azq-sim-", dir=_MEMORY, ignore_cleanup_errors=True) as folder:
        return SeedRun(seed, faults, Path(folder), trace=trace, until=until).run(seconds)


def shrink(outcome: SeedOutcome, seconds: float, most: int = 200) -> SeedOutcome:
    """The same failure with fewer faults, none of which can be left out alone, as far as `most` simulations get."""
    size, tried = max(1, len(outcome.faults) // 2), 0
    while size and tried < most:
        start, smaller = 0, False
        while start < len(outcome.faults) and tried < most:
            rest = [*outcome.faults[:start], *outcome.faults[start + size :]]
            candidate, tried = simulate(outcome.seed, rest, seconds), tried + 1
            if candidate.failed:
                outcome, smaller = candidate, True
            else:
                start += size
        size = size if smaller and size == 1 else size // 2
    return outcome
