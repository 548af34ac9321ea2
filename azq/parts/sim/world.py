"""A simulated world: one clock, actors of which one runs at a time, and a seed that decides who runs next.

Actors are greenlets. They give way where a process waits or is in somebody's hands: at each round trip to the broker, each call to the
disk, each pause. A killed actor gets `Killed` there, and whatever it still calls on its way out has no effect.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from traceback import format_exception

import greenlet

from azq.clock import wall_clock
from azq.errors import AzqError

START_NS = 1_700_000_000 * 10**9  # of the wall clock
SECOND = 10**9
LATENCY_S = 0.002  # mean, one way
SLOWNESS = (1.0, 1.0, 1.0, 1.0, 10.0, 100.0)  # of a process's network, drawn at its start: rare orders of events need slow ones
SKEW_S = 2.0  # of a host's wall clock at the start, at most
RESTART_S = (0.2, 3.0)  # after which a supervisor starts a process again


class Killed(BaseException):
    """The end of a process in the middle of a call."""


@dataclass(eq=False)
class Actor:
    """A process: started again whenever it ends. `skew_ns` is its host's wall clock against the world's."""

    name: str
    main: Callable[[Actor], None]
    life: int = 0
    dead: bool = False
    slowness: float = 1.0
    skew_ns: int = 0
    frozen_until_ns: int = 0
    cut: str = ""  # when its next round trip breaks: "before" or "after" the broker did what it was sent
    due: int = 0  # number of the wake-up that counts
    ahead: list[tuple[int, Callable[[], None]]] = field(default_factory=list)  # what meets it after so many more calls
    at_exit: list[Callable[[], None]] = field(default_factory=list)  # what its host does for the dead
    running: greenlet.greenlet | None = None

    @property
    def owner(self) -> str:
        """This life of it, as the ledger's holders are named."""
        return f"{self.name}:{self.life}"


class World:
    """Clock, scheduler and record of what happened; `trace_hash` is the same wherever a seed runs."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.rng = random.Random(f"schedule {seed}")
        self.now_ns = 0
        self.actors: list[Actor] = []
        self.crashes: list[str] = []  # ends that no process of azq may have
        self.endings: list[str] = []
        self.lines: list[str] = []  # of the trace, where it is wanted
        self.traces = trace
        self.events = 0
        self.until = 0  # the event at which `stop` is called, where it runs
        self.stop: Callable[[], None] = lambda: None
        self.is_over = False
        self._waiting: list[tuple[int, int, Actor | Callable[[], None], int]] = []
        self._number = 0
        self._until_ns = 0  # to which it runs
        self._hash = hashlib.sha256()
        self._hub = greenlet.getcurrent()
        self._current: Actor | None = None

    # -- of actors

    def monotonic(self) -> float:
        """The monotonic clock, of all hosts."""
        return self.now_ns / SECOND

    @property
    def current(self) -> Actor:
        """Who runs. Raises `Killed` where it is dead."""
        actor = self._current
        assert actor is not None, "no actor runs"
        if actor.dead:
            raise Killed
        return actor

    def pause(self, seconds: float) -> bool:
        """Lets others run for so long; False, as the wait for a stop that never comes. Raises `Killed`."""
        actor = self.current
        at_ns = self.now_ns + max(1, round(seconds * SECOND))
        if at_ns <= self._until_ns and at_ns >= actor.frozen_until_ns and not (self._waiting and self._waiting[0][0] <= at_ns):
            self.now_ns = at_ns  # nothing happens meanwhile
            return False
        self._wake(actor, at_ns)
        self._hub.switch()
        if actor.dead:
            raise Killed
        return False

    def send(self, what: str) -> str:
        """Lets what the actor that runs sends travel one way; where the round trip breaks, as its `cut` has it. Raises `Killed`."""
        actor = self.current
        self.note(what)
        self.pause(self.latency_s())
        cut, actor.cut = actor.cut, ""
        return cut

    def latency_s(self) -> float:
        """Of one way over the network."""
        return self.rng.expovariate(1.0) * LATENCY_S * self.current.slowness

    def note(self, what: str) -> None:
        """Adds a line to the trace: number, time, whose, what."""
        self.events += 1
        self._hash.update(self.add_line(what).encode())
        if self.events == self.until:
            self.stop()
        if self._current and self._current.ahead:
            calls, do = self._current.ahead.pop()
            self._current.ahead.append((calls - 1, do)) if calls > 1 else do()

    def add_line(self, what: str) -> str:
        """Adds one with the last one's number, which the hash leaves out, where lines are wanted; returns it."""
        line = f"{self.events} {self.now_ns / SECOND:.6f} {self._current.owner if self._current else '-'} {what}"
        if self.traces:
            self.lines.append(line)
        return line

    # -- of who stages

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()[:16]

    def spawn(self, name: str, main: Callable[[Actor], None], within_s: float = 0.5) -> Actor:
        """A process that starts within so long, on a host whose clock is not quite right."""
        actor = Actor(name, main, skew_ns=round(self.rng.uniform(-SKEW_S, SKEW_S) * SECOND))
        self.actors.append(actor)
        self._start(actor, 0.0, within_s)
        return actor

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """Has something done at a time, between two steps of actors."""
        self._number += 1
        heapq.heappush(self._waiting, (round(seconds * SECOND), self._number, do, 0))

    def kill(self, actor: Actor) -> None:
        """SIGKILL."""
        if actor.running is not None and not actor.dead:
            actor.dead = True
            actor.frozen_until_ns = 0
            self._wake(actor, self.now_ns)

    def run(self, until_s: float) -> None:
        """Runs until a time. Raises what `at` raises."""
        self._until_ns = until_ns = round(until_s * SECOND)
        while self._waiting and self._waiting[0][0] <= until_ns:
            at_ns, _, who, due = heapq.heappop(self._waiting)
            self.now_ns = max(self.now_ns, at_ns)
            if not isinstance(who, Actor):
                who()
            elif due == who.due:
                self._resume(who)
        self.now_ns = max(self.now_ns, until_ns)

    def end(self) -> None:
        """Ends all actors."""
        self.is_over = True
        self._until_ns = 0
        for actor in self.actors:
            if actor.running is not None:
                actor.dead = True
                self._step(actor)

    def _wake(self, actor: Actor, at_ns: int) -> None:
        self._number += 1
        actor.due = self._number
        heapq.heappush(self._waiting, (at_ns, self._number, actor, self._number))

    def _start(self, actor: Actor, soonest_s: float, latest_s: float) -> None:
        self._wake(actor, self.now_ns + round(self.rng.uniform(soonest_s, latest_s) * SECOND))

    def _resume(self, actor: Actor) -> None:
        if actor.frozen_until_ns > self.now_ns:
            self._wake(actor, actor.frozen_until_ns)
            return
        if actor.running is None:
            actor.life += 1
            actor.dead, actor.cut = False, ""
            actor.slowness = self.rng.choice(SLOWNESS)
            actor.running = greenlet.greenlet(self._live)
        self._step(actor)

    def _step(self, actor: Actor) -> None:
        assert actor.running is not None
        self._current = actor
        try:
            actor.running.switch(actor) if not actor.running else actor.running.switch()
        finally:
            self._current = None
        if actor.running.dead:
            actor.running = None
            for do in actor.at_exit:
                do()
            actor.at_exit.clear()
            if not self.is_over:
                self._start(actor, *RESTART_S)

    def _live(self, actor: Actor) -> None:
        try:
            with wall_clock(lambda: START_NS + self.now_ns + actor.skew_ns):
                actor.main(actor)
        except Killed:
            if not self.is_over:
                self.note("killed")
        except AzqError as error:
            self.note(f"ended {type(error).__name__}")
            self.endings.append(f"{actor.owner}: {type(error).__name__}: {error}")
        except Exception as error:
            if not actor.dead:
                self.note(f"crashed {type(error).__name__}")
                self.crashes.append(f"{actor.owner}: {''.join(format_exception(error)[-3:])}")
