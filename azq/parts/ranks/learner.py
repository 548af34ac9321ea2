"""The learner process of a run with several ranks, an extension of `workers.learner`."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from azq import logs
from azq.errors import ExitCode
from azq.learner.data.batches import Feed
from azq.learner.opening import prepare_training
from azq.learner.rounds import Ranks
from azq.learner.step.trainer import Trainer
from azq.parts.ranks.games import open_follower
from azq.parts.ranks.leader import Leader
from azq.parts.ranks.rules import RankPlace, place_of
from azq.process import liveness
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, WATCHDOG, WorkWatch, notify
from azq.process.start import AZQ
from azq.process.supervisor import ChildSpec, Process, Supervisor, spawn
from azq.waiting import Backoff
from workers.learner import LearnerProcess, learn

BACKOFF = Backoff(1.0, 30.0)
STOP_AFTER_S = 5.0

log = logs.get(__name__)


def main(process: LearnerProcess) -> int:
    """Rank 0 is the learner, and starts the others unless torchrun did; raises `ConfigError` for a RANK that is no place."""
    place = place_of(os.environ, process.sections.learner.ranks)
    if place.rank:
        return follow(process, place)

    def make_ranks(trainer: Trainer, feed: Feed) -> Ranks[Trainer]:
        if place.ranks == 1:
            return Ranks(trainer, feed)
        return Leader(trainer, feed, process.run, process.bus, process.sections.learner, place)

    return learn(process, make_ranks, place.local, launched(process.run, place, process.directory))


def follow(process: LearnerProcess, place: RankPlace) -> int:
    """Trains as any other rank until SIGTERM or SIGINT."""
    with Interrupts() as stop:
        prepare_training(process.sections.learner, place.local)
        follower = open_follower(process.run, process.directory, process.sections, process.game(), bus=process.bus, place=place)
        notify(READY, f"STATUS=rank {place.rank} of {process.run}")
        watch = WorkWatch(partial(notify, WATCHDOG))
        with watch.beside():
            follower.run(stop, watch=watch)
    return int(ExitCode.OK)


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
        """Starts ranks that are due and logs deaths."""
        while self._missing:
            self._ranks.start(self._missing.pop(0))
        for name, code in self._ranks.tick():
            again_s = self._ranks.children[name].start_again_s
            if again_s is None:
                log.error("rank_given_up", rank=int(name), exit_code=code, remedy="the reason is above; training goes on without it")
            else:
                log.warning("rank_died", rank=int(name), exit_code=code, start_again_in_s=again_s - self._clock())

    def stop(self, wait: Callable[[float], object]) -> None:
        """Sends SIGTERM to all, then SIGKILL to those left after `STOP_AFTER_S`; `wait(seconds)` sleeps between checks."""
        self._ranks.stop(tuple(self._ranks.children), wait)


@contextlib.contextmanager
def launched(run: str, place: RankPlace, folder: Path) -> Iterator[Callable[[], None]]:
    """The turn of a launcher, whose ranks end with the context."""
    launcher = Launcher(run, place, folder)
    try:
        yield launcher.turn
    finally:
        launcher.stop(threading.Event().wait)


def rank_spec(run: str, rank: int, folder: Path) -> ChildSpec:
    """A rank as a child of this process, whose log and folder of the run it shares."""
    command = [*AZQ, "learner", "--run", run, "--folder", str(folder)]
    return ChildSpec(str(rank), command, log=None, stop_after_s=STOP_AFTER_S, env=environment(os.environ, rank))


def environment(environ: Mapping[str, str], rank: int) -> dict[str, str]:
    """A rank's environment: this process's without its watchdog and liveness variables."""
    inherited = {name: value for name, value in environ.items() if name not in (*liveness.VARIABLES, liveness.ALIVE_FILE)}
    return {**inherited, "RANK": str(rank), "LOCAL_RANK": str(rank)}
