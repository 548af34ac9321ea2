"""The learner process: one run's `azq.learner.Learner` with its right to learn, its heartbeats and its signals."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import redis

from azq import games, logs
from azq.bus.base import Bus
from azq.bus.redis import RedisBus, connect_at_start
from azq.config import Config, RunSections, WorkerConfig
from azq.errors import AzqError, ExitCode
from azq.learner.learner import Learner
from azq.learner.opening import LearnerSetup, open_follower, prepare_training
from azq.learner.ranks.rules import RankPlace, place_of
from azq.learner.replication.remote_index import open_run_prefix
from azq.learner.tracking.opening import open_trackers
from azq.learner.tracking.tracker import TrackedRun
from azq.ledger import Ledger
from azq.ledger.holder import held_place, lock_folder, renewed
from azq.ledger.records import sections_of
from azq.ledger.types import LearnerLease, RunView
from azq.metrics import DISK_FREE_BYTES, SAMPLES_PER_S
from azq.nets.device import Gauge
from azq.process import liveness
from azq.process.breaker import CircuitBreaker
from azq.process.cards import LateGpu
from azq.process.heartbeat import Presence
from azq.process.interrupts import Interrupts, StopSign
from azq.process.liveness import READY, STOPPING, WATCHDOG, WorkWatch, more_time, notify
from azq.process.start import AZQ, PARENT_VARIABLE
from azq.process.supervisor import ChildSpec, Process, Supervisor, spawn
from azq.store import open_store
from azq.store.signing import read_key
from azq.waiting import Backoff
from azq.wire.connect import agree_on_schema
from azq.wire.messages import LearnerStatus

OPENING_EVERY_S = 2.0
OPENING_MORE_S = 120.0  # one file of a Python game may take a while

log = logs.get(__name__)


def main(config: Config, run: str, folder: Path | None = None) -> int:
    """Learns until SIGTERM or SIGINT, then drains the sample stream, publishes and writes a checkpoint; returns an exit code.

    `folder` is the run's on this host, where it is not the one that the run names: what the run's store keeps is fetched into it.
    With several ranks this is one of them, as RANK says; rank 0 is the learner and starts the others unless torchrun did.
    Raises `ConfigError` where no broker is set, `BrokerUnavailable` when nobody answers at the start, `NotFound` for an unknown run,
    `StateConflict` when another learner has the run's folder or, on any host, the run, and what `Learner.run` raises.
    """
    client = connect_at_start(config.broker)
    agree_on_schema(client)
    ledger = Ledger(client)
    view = ledger.run(run)
    directory, bus = (folder or Path(view.record.directory)).absolute(), RedisBus(client)
    place = place_of(os.environ, sections_of(view.record).learner.ranks)
    if place.rank:
        with Interrupts() as stop:
            return follow(config, view, directory, bus, client, place, stop)
    with (
        Interrupts() as stop,
        lock_folder(directory),
        held_place(ledger, run, stop.wait) as lease,
        launched(run, place, directory) as launcher,
    ):
        beat = LearnerBeat(bus, run, directory, config.worker)
        beat.turn(None)
        with renewed(ledger, lease):
            learner = _open(config, view, directory, bus, client, ledger, beat, place, lease)
        notify(READY, f"STATUS=learning {run}")

        watch = WorkWatch(beat.say)

        def on_turn(status: LearnerStatus) -> None:
            watch.mark()
            beat.turn(status, learner.shares, learner.trainer.note)
            launcher.turn()

        with watch.beside():
            learner.run(stop, on_turn, watch)
        beat.end()
    return int(ExitCode.OK)


def follow(config: Config, view: RunView, directory: Path, bus: Bus, client: redis.Redis, place: RankPlace, stop: StopSign) -> int:
    """A rank other than 0: trains on what rank 0 says until it is told to stop."""
    sections = sections_of(view.record)
    prepare_training(sections.learner, place.local)
    game = _game(config, sections)
    prefix = open_run_prefix(config.store, view.record, partial(read_key, client))
    follower = open_follower(view.record.run, directory, sections, game, bus=bus, place=place, prefix=prefix)
    notify(READY, f"STATUS=rank {place.rank} of {view.record.run}")
    watch = WorkWatch(partial(notify, WATCHDOG))
    with watch.beside():
        follower.run(stop, watch=watch)
    return int(ExitCode.OK)


def _open(
    config: Config,
    view: RunView,
    directory: Path,
    bus: Bus,
    client: redis.Redis,
    ledger: Ledger,
    beat: LearnerBeat,
    place: RankPlace,
    lease: LearnerLease,
) -> Learner:
    run = view.record.run
    sections = sections_of(view.record)
    late = LateGpu(sections.learner.device)
    device = prepare_training(sections.learner, place.local)
    beat.gauge, beat.look = Gauge(device), partial(late.check, device.type)
    tracked = TrackedRun(run, view.record.created_ms, directory, sections.model_dump(mode="json"))
    return LearnerSetup(
        run,
        directory,
        sections,
        _game(config, sections),
        bus=bus,
        ledger=ledger,
        store=open_store(config.store, directory=directory / "weights", client=client),
        tracker=open_trackers(config.tracking, tracked),
        consumer=beat.worker,
        place=place,
        created_ms=view.record.created_ms,
        progress=Opening(run, beat).turn,
        lease=lease,
        prefix=open_run_prefix(config.store, view.record, partial(read_key, client)),
        most_bytes=config.store.chunk_bytes,
    ).open()


def _game(config: Config, sections: RunSections) -> games.Game:
    return games.GameFiles(config.worker.game_files).load(sections.run.game, sections.run.params)


class Opening:
    """Says that a learner which reads a long log lives and needs its time: to systemd, in the log, and by its heartbeat."""

    def __init__(self, run: str, beat: LearnerBeat, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._beat = beat
        self._clock = clock
        self._due = clock() + OPENING_EVERY_S

    def turn(self, what: str) -> None:
        """Told of every file and game that is read."""
        if self._clock() < self._due:
            return
        self._due = self._clock() + OPENING_EVERY_S
        notify(more_time(OPENING_MORE_S), f"STATUS=opening {self._run}: {what}")
        log.info("learner_opens", run=self._run, reads=what)
        self._beat.turn(None)


class LearnerBeat:
    """Says that the learner lives: a heartbeat in the control plane, with news from the learner's own loop, and the watchdog's ping."""

    def __init__(self, bus: Bus, run: str, directory: Path, config: WorkerConfig) -> None:
        self._presence = Presence("learner", life_s=config.heartbeat_life_s, every_s=config.heartbeat_s, run=run)
        self.worker = self._presence.worker
        self._bus = bus
        self._run = run
        self._directory = directory
        self._outage = CircuitBreaker()
        self.gauge: Gauge | None = None  # of the device, once there is one
        self.look: Callable[[], None] = lambda: None  # for a GPU that was late
        self._known: Callable[[], object] = lambda: None  # beats with what was known last

    def turn(self, status: LearnerStatus | None, shares: Callable[[], dict[str, float]] = dict, note: str = "") -> None:
        """Beats when it is time; `status` is None before the learner is open. Raises `DeviceError` where a GPU was late."""
        if not self._presence.due():
            return
        self.look()
        rates = {**({SAMPLES_PER_S: status.samples_per_s} if status else {}), **shares(), **self._disk()}
        rates |= self.gauge.figures if self.gauge else {}
        versions = {self._run: status.weight_version} if status else {}
        self._known = partial(self._presence.beat, self._bus, rates, weight_versions=versions, note=note)
        self._outage.attempt(self._known)

    def say(self) -> None:
        """To be called while the learner gets on: in the middle of a long step, too, of which there is no news yet."""
        notify(WATCHDOG)
        if self._presence.due():
            with suppress(AzqError):  # the learner's own loop meets the same
                self._outage.attempt(self._known)

    def end(self) -> None:
        """Takes the heartbeat away, so that nobody waits for its life to run out."""
        notify(STOPPING)
        self._outage.attempt(lambda: self._presence.leave(self._bus))

    def _disk(self) -> dict[str, float]:
        try:
            return {DISK_FREE_BYTES: float(shutil.disk_usage(self._directory).free)}
        except OSError:  # a folder that is gone is the segment log's to report
            return {}


BACKOFF = Backoff(1.0, 30.0)
STOP_AFTER_S = 5.0


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
