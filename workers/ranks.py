"""Starts the other ranks of a learner on its own host, and starts them again when they die."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from azq import logs
from azq.errors import DO_NOT_RESTART
from azq.learner.ranks.rules import RankPlace

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0
STEADY_AFTER_S = 10.0  # a rank that lived so long starts again with the first delay
STOP_AFTER_S = 5.0
PARENT_VARIABLE = "AZQ_PARENT_PID"  # a rank ends when the learner that started it dies
NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # signs of life that are the learner's own to give

log = logs.get(__name__)


class Process(Protocol):
    """What the launcher needs of a process; `subprocess.Popen` fulfils it."""

    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(slots=True)
class _Child:
    process: Process | None = None
    delay_s: float = FIRST_DELAY_S
    started_s: float = 0.0
    start_s: float | None = 0.0  # when it is due to start; None: while it runs, and when it is given up


class Launcher:
    """The ranks from 1 on of one run; none where something else launches them."""

    def __init__(
        self, run: str, place: RankPlace, start: Callable[[str, int], Process], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run
        self._start = start
        self._clock = clock
        self._children = {} if place.launched else {rank: _Child() for rank in range(1, place.ranks)}

    def turn(self) -> None:
        """Starts what is due, and notices deaths."""
        for rank, child in self._children.items():
            if child.process is not None and (code := child.process.poll()) is not None:
                self._bury(rank, child, code)
            if child.start_s is not None and self._clock() >= child.start_s:
                child.process, child.started_s, child.start_s = self._start(self._run, rank), self._clock(), None

    def stop(self) -> None:
        """SIGTERM to all, SIGKILL to those that outlive their time."""
        running = [child.process for child in self._children.values() if child.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_AFTER_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _bury(self, rank: int, child: _Child, code: int) -> None:
        child.process = None
        if code in DO_NOT_RESTART:
            log.error("rank_given_up", rank=rank, exit_code=code, remedy="the reason is above; training goes on without it")
            return
        if self._clock() - child.started_s >= STEADY_AFTER_S:
            child.delay_s = FIRST_DELAY_S
        child.start_s = self._clock() + child.delay_s
        log.warning("rank_died", rank=rank, exit_code=code, start_again_in_s=child.delay_s)
        child.delay_s = min(LONGEST_DELAY_S, 2 * child.delay_s)


@contextlib.contextmanager
def launched(run: str, place: RankPlace) -> Iterator[Launcher]:
    """A launcher whose ranks end with the context."""
    launcher = Launcher(run, place, start_rank)
    try:
        yield launcher
    finally:
        launcher.stop()


def environment(environ: Mapping[str, str], rank: int, parent: int) -> dict[str, str]:
    """What a rank that this host's rank 0 starts finds in its environment."""
    kept = {name: value for name, value in environ.items() if name not in NOT_INHERITED}
    return {**kept, "RANK": str(rank), "LOCAL_RANK": str(rank), PARENT_VARIABLE: str(parent)}


def start_rank(run: str, rank: int) -> Process:
    """Starts a rank as a child of this process."""
    command = [sys.executable, "-m", "azq", "learner", "--run", run]
    return subprocess.Popen(command, env=environment(os.environ, rank, os.getpid()))
