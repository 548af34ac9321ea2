"""Keeps child processes alive: start, restart with back-off, stop in order, end what hangs. The loop decides by pure functions.

The shape is uvicorn's supervisor with what gunicorn knows: exit codes that mean "do not restart me",
a growing delay for a child that keeps dying, and SIGKILL for one that does not stop in time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from azq import logs
from azq.errors import DO_NOT_RESTART
from azq.masking import masked
from azq.process.liveness import READY, WATCHDOG, NotifySocket, hangs
from azq.process.start import bound_to_this
from azq.waiting import AwakeClock, Backoff

BACKOFF = Backoff(0.2, 30.0)  # before a child that died is started again
STEADY_AFTER_S = 10.0  # one that lived so long waits the first pause
LONGEST_CAUSE = 200  # characters
DEATHS_KEPT = 64  # until somebody takes them

log = logs.get(__name__)


class Process(Protocol):
    """What the supervisor needs of a process; `subprocess.Popen` fulfils it."""

    pid: int

    def poll(self) -> int | None: ...
    def send_signal(self, sig: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child process: its name, command and the file its output goes to; None: where its parent's goes."""

    name: str
    command: Sequence[str]
    log: Path | None
    stop_after_s: float = 15.0  # SIGKILL follows SIGTERM after so long
    env: Mapping[str, str] | None = None  # its own; else the supervisor's
    run: str = ""  # the one that it works for; empty: all of them


@dataclass(frozen=True, slots=True)
class Death:
    """A child that ended otherwise than well: which, and of what."""

    spec: ChildSpec
    pid: int
    cause: str


@dataclass(slots=True)
class Child:
    """A child as it stands: running, waiting to be started again, or given up."""

    spec: ChildSpec
    process: Process | None = None
    started_s: float = 0.0
    start_again_s: float | None = None
    deaths: int = 0  # in a row, none of them after a steady life
    given_up: int | None = None  # the exit code that forbade a restart
    pings: NotifySocket | None = None
    alive_s: float | None = None  # when it last said so, while the supervisor was awake; READY starts the watch, as under systemd
    silent_s: float | None = None  # how long it had said nothing when it was killed for that
    cause: str = ""  # of its last death


def cause_of(code: int, silent_s: float | None, words: str) -> str:
    """Why a process ended, in a line: the signal, or the exit code with the last line of its log. Pure."""
    if silent_s is not None:
        return f"SIGKILL, no sign of life for {silent_s:.0f} s"
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return names.get(-code, f"signal {-code}")
    return f"exit code {code}" + (f", {masked(words)}"[:LONGEST_CAUSE] if code else "")


def spawn(spec: ChildSpec, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts a child that ends with this process, in its own session, so that the terminal's Ctrl-C reaches the supervisor alone."""
    if spec.log:
        spec.log.parent.mkdir(parents=True, exist_ok=True)
    with spec.log.open("ab") if spec.log else contextlib.nullcontext() as log:
        return subprocess.Popen(spec.command, stdout=log, stderr=log, start_new_session=True, **bound_to_this(env))


def last_line(path: Path | None) -> str:
    """The last thing a process wrote into its log, which says why it ended."""
    try:
        lines = path.read_text("utf-8", "replace").strip().splitlines() if path else []
    except OSError:
        lines = []
    return reason_in(lines[-1]) if lines else "it said nothing"


def reason_in(line: str) -> str:
    """The reason that a line of log gives, in either of its forms; the line itself where it gives none."""
    if line.startswith("{"):
        with contextlib.suppress(json.JSONDecodeError):
            return str(json.loads(line).get("reason", line))
    match = re.search(r"""\breason=(['"])(.*)\1""", line)
    return match[2].replace(f"\\{match[1]}", match[1]) if match else line


@dataclass(slots=True)
class Supervisor:
    """Children by name; `tick` keeps them alive, `stop` ends some of them."""

    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    start_process: Callable[[ChildSpec, Mapping[str, str]], Process] = spawn
    clock: Callable[[], float] = time.monotonic
    children: dict[str, Child] = field(default_factory=dict)
    hang_after_s: float | None = None  # None: no child is watched
    backoff: Backoff = BACKOFF
    _deaths: deque[Death] = field(default_factory=lambda: deque(maxlen=DEATHS_KEPT))
    _awake_s: AwakeClock = field(init=False)

    def __post_init__(self) -> None:
        self._awake_s = AwakeClock(self.clock)

    def start(self, spec: ChildSpec) -> None:
        """Starts a child that is kept alive from now on."""
        child = Child(spec)
        self.children[spec.name] = child
        self._launch(child)

    def tick(self, *, excused: bool = False) -> list[tuple[str, int]]:
        """Notices deaths and starts children whose wait is over; returns (name, exit code) of the newly dead.

        `excused`: what children wait for hangs itself, so their silence is no sign that they do.
        """
        deaths, now_s = [], self._awake_s()
        for child in self.children.values():
            code = child.process.poll() if child.process else None
            if child.process and code is not None:
                deaths.append((child.spec.name, code))
                self._bury(child, code)
            elif child.process and child.pings:
                self._watch(child, child.pings, now_s, excused)
            elif child.start_again_s is not None and self.clock() >= child.start_again_s:
                self._launch(child)
        return deaths

    def check(self, *, excused: bool = False) -> dict[str, int]:
        """As `tick`, and says in the log who died and, once, who was given up and why; returns the latter."""
        before = self.failed()
        for name, code in self.tick(excused=excused):
            child = self.children[name]
            log.warning("child_died", name=name, exit_code=code, cause=child.cause, log=str(child.spec.log))
        failed = self.failed()
        for name in failed.keys() - before.keys():
            path = self.children[name].spec.log
            log.error("child_given_up", name=name, exit_code=failed[name], reason=last_line(path), log=str(path))
        return failed

    def stop(self, names: Sequence[str], wait: Callable[[float], object]) -> None:
        """SIGTERM to all of `names`, then SIGKILL to those that outlive their time; `wait(seconds)` sleeps between looks."""
        stopping = [child for name in names if (child := self.children.pop(name, None)) is not None and child.process]
        for child in stopping:
            self._signal(child, signal.SIGTERM)
        ended, begun = list(stopping), self.clock()
        while stopping := [child for child in stopping if child.process and child.process.poll() is None]:
            for child in stopping:
                if self.clock() - begun > child.spec.stop_after_s:
                    self._signal(child, signal.SIGKILL)
            wait(0.05)
        for child in ended:
            self._stop_listening(child)

    def kill(self) -> None:
        """SIGKILL to every child at once."""
        for child in self.children.values():
            self._signal(child, signal.SIGKILL)
            self._stop_listening(child)
        self.children.clear()

    def take_deaths(self) -> list[Death]:
        """Who died since this was last called, oldest first; some at most."""
        deaths = list(self._deaths)
        self._deaths.clear()
        return deaths

    def failed(self) -> dict[str, int]:
        """Children that were given up, with the exit code that forbade a restart."""
        return {name: child.given_up for name, child in self.children.items() if child.given_up is not None}

    def _watch(self, child: Child, pings: NotifySocket, now_s: float, excused: bool) -> None:
        """SIGKILL to a child that hangs; its death is noticed like any other."""
        assert self.hang_after_s is not None
        lines = pings.heard()
        if READY in lines or (child.alive_s is not None and (excused or WATCHDOG in lines)):
            child.alive_s = now_s
        elif hangs(child.alive_s, now_s, self.hang_after_s):
            child.alive_s, child.silent_s = None, self.hang_after_s
            self._signal(child, signal.SIGKILL)

    def _launch(self, child: Child) -> None:
        child.alive_s = child.silent_s = None
        if self.hang_after_s is not None and hasattr(socket, "AF_UNIX"):
            child.pings = NotifySocket(self.hang_after_s)
        env = self.env if child.spec.env is None else child.spec.env
        env = {**env, **child.pings.variables()} if child.pings else env
        child.process = self.start_process(child.spec, env)
        child.started_s = self.clock()
        child.start_again_s = None

    def _bury(self, child: Child, code: int) -> None:
        child.cause = cause_of(code, child.silent_s, last_line(child.spec.log) if code > 0 else "")
        if code and child.process:
            self._deaths.append(Death(child.spec, child.process.pid, child.cause))
        child.process = None
        self._stop_listening(child)
        if code in DO_NOT_RESTART:
            child.given_up = code
            return
        steady = self.clock() - child.started_s >= STEADY_AFTER_S
        child.deaths = 1 if steady else child.deaths + 1
        child.start_again_s = self.clock() + self.backoff.pause_s(child.deaths)

    @staticmethod
    def _stop_listening(child: Child) -> None:
        if child.pings:
            child.pings.close()
            child.pings = None

    @staticmethod
    def _signal(child: Child, sig: signal.Signals) -> None:
        if child.process and child.process.poll() is None:
            child.process.send_signal(sig)
