"""Keeps the other ranks of a learner alive on its own host."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from azq import logs
from azq.learner.ranks.rules import RankPlace
from azq.process import liveness
from azq.process.python import AZQ
from azq.process.start import PARENT_VARIABLE
from azq.process.supervisor import ChildSpec, Process, Supervisor, spawn
from azq.waiting import Backoff

BACKOFF = Backoff(1.0, 30.0)
STOP_AFTER_S = 5.0

log = logs.get(__name__)


class Launcher:
    """The ranks from 1 on of one run; none where something else launches them."""

    def __init__(
        self,
        run: str,
        place: RankPlace,
        folder: Path,
        start: Callable[[ChildSpec, Mapping[str, str]], Process] = spawn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks = Supervisor(start_process=start, clock=clock, backoff=BACKOFF)
        self._missing = [] if place.launched else [rank_spec(run, rank, folder) for rank in range(1, place.ranks)]
        self._clock = clock

    def turn(self) -> None:
        """Starts what is due, and notices deaths."""
        while self._missing:
            self._ranks.start(self._missing.pop(0))
        for name, code in self._ranks.tick():
            again_s = self._ranks.children[name].start_again_s
            if again_s is None:
                log.error("rank_given_up", rank=int(name), exit_code=code, remedy="the reason is above; training goes on without it")
            else:
                log.warning("rank_died", rank=int(name), exit_code=code, start_again_in_s=again_s - self._clock())

    def stop(self, wait: Callable[[float], object]) -> None:
        """SIGTERM to all, SIGKILL to those that outlive their time; `wait(seconds)` sleeps between looks."""
        self._ranks.stop(tuple(self._ranks.children), wait)


@contextlib.contextmanager
def launched(run: str, place: RankPlace, folder: Path) -> Iterator[Launcher]:
    """A launcher whose ranks end with the context."""
    launcher = Launcher(run, place, folder)
    try:
        yield launcher
    finally:
        launcher.stop(threading.Event().wait)


def rank_spec(run: str, rank: int, folder: Path) -> ChildSpec:
    """A rank as a child of this process, whose log and folder of the run it shares."""
    command = [*AZQ, "learner", "--run", run, "--folder", str(folder)]
    return ChildSpec(str(rank), command, log=None, stop_after_s=STOP_AFTER_S, env=environment(os.environ, rank, os.getpid()))


def environment(environ: Mapping[str, str], rank: int, parent: int) -> dict[str, str]:
    """What a rank finds in its environment: all but the learner's signs of life, which are its own to give."""
    kept = {name: value for name, value in environ.items() if name not in (*liveness.VARIABLES, liveness.ALIVE_FILE)}
    return {**kept, "RANK": str(rank), "LOCAL_RANK": str(rank), PARENT_VARIABLE: str(parent)}
