"""The learner process: one run's `azq.learner.Learner` with its right to learn, its heartbeats and its signals."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import redis

from azq import games, logs, parts
from azq.bus.base import Bus
from azq.bus.redis import RedisBus, connect_at_start
from azq.config import Config, RunSections, WorkerConfig
from azq.errors import AzqError, ExitCode, MissingExtra
from azq.learner.data.batches import Feed
from azq.learner.learner import Learner
from azq.learner.opening import LearnerSetup, prepare_training
from azq.learner.replication.remote_index import open_run_prefix
from azq.learner.rounds import Ranks
from azq.learner.step.trainer import Trainer
from azq.learner.tracking.tracker import TrackedRun, open_trackers
from azq.ledger import Ledger
from azq.ledger.holder import held_place, lock_folder, renewed
from azq.ledger.records import sections_of
from azq.ledger.types import LearnerLease, RunView
from azq.metrics import DISK_FREE_BYTES, SAMPLES_PER_S
from azq.nets.device import Gauge
from azq.process.breaker import CircuitBreaker
from azq.process.cards import LateGpu
from azq.process.heartbeat import Presence
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, STOPPING, WATCHDOG, WorkWatch, more_time, notify
from azq.store import open_store
from azq.store.objects import ObjectPrefix
from azq.store.signing import read_key
from azq.wire.connect import agree_on_schema
from azq.wire.messages import LearnerStatus

OPENING_EVERY_S = 2.0
OPENING_MORE_S = 120.0  # one file of a Python game may take a while

log = logs.get(__name__)


@dataclass(frozen=True)
class LearnerProcess:
    """The settings and connections of a process that trains for a run."""

    config: Config
    view: RunView
    directory: Path  # of the run, on this host
    client: redis.Redis  # of the control plane

    @property
    def run(self) -> str:
        return self.view.record.run

    @cached_property
    def sections(self) -> RunSections:
        return sections_of(self.view.record)

    @cached_property
    def bus(self) -> RedisBus:
        return RedisBus(self.client)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.client)

    def game(self) -> games.Game:
        return games.GameFiles(self.config.worker.game_files).load(self.sections.run.game, self.sections.run.params)

    def prefix(self) -> ObjectPrefix | None:
        """The run's place in its store, where that keeps games and checkpoints."""
        return open_run_prefix(self.config.store, self.view.record, partial(read_key, self.client))


def main(config: Config, run: str, folder: Path | None = None) -> int:
    """Learns until SIGTERM or SIGINT, then drains the sample stream, publishes and writes a checkpoint; returns an exit code.

    `folder` is the run's on this host, where it is not the one that the run names: what the run's store keeps is fetched into it.
    With several ranks this is one of them, as RANK says (`azq.parts.ranks`).
    Raises `ConfigError` where no broker is set, `BrokerUnavailable` without an answer at the start, `NotFound` for an unknown run,
    `MissingExtra` for several ranks without their part, `StateConflict` when another learner has the run's folder or, on any host, the
    run, and what `Learner.run` raises.
    """
    client = connect_at_start(config.broker)
    agree_on_schema(client)
    view = Ledger(client).run(run)
    process = LearnerProcess(config, view, (folder or Path(view.record.directory)).absolute(), client)
    if process.sections.learner.ranks == 1 and "RANK" not in os.environ:
        return learn(process)
    if (ranks := next(parts.extensions("learner"), None)) is None:
        raise MissingExtra(f"run {run} has several ranks, and azq.parts.ranks is missing; install all of azq, or set learner.ranks = 1")
    return int(ranks.main(process))


def learn(
    process: LearnerProcess,
    make_ranks: Callable[[Trainer, Feed], Ranks[Trainer]] = Ranks,
    local: int = 0,
    launched: AbstractContextManager[Callable[[], object]] | None = None,
) -> int:
    """The learner of a run, or rank 0 of several, number `local` on its host; what `launched` gives is called every turn."""
    run, directory = process.run, process.directory
    with (
        Interrupts() as stop,
        lock_folder(directory),
        held_place(process.ledger, run, stop.wait) as lease,
        launched or nullcontext(lambda: None) as launch,
    ):
        beat = LearnerBeat(process.bus, run, directory, process.config.worker)
        beat.turn(None)
        with renewed(process.ledger, lease):
            learner = _open(process, beat, lease, make_ranks, local)
        notify(READY, f"STATUS=learning {run}")

        watch = WorkWatch(beat.say)

        def on_turn(status: LearnerStatus) -> None:
            watch.mark()
            beat.turn(status, learner.shares, learner.trainer.note)
            launch()

        with watch.beside():
            learner.run(stop, on_turn, watch)
        beat.end()
    return int(ExitCode.OK)


def _open(
    process: LearnerProcess, beat: LearnerBeat, lease: LearnerLease, make_ranks: Callable[[Trainer, Feed], Ranks[Trainer]], local: int
) -> Learner:
    run, sections, config, record = process.run, process.sections, process.config, process.view.record
    late = LateGpu(sections.learner.device)
    device = prepare_training(sections.learner, local)
    beat.gauge, beat.look = Gauge(device), partial(late.check, device.type)
    tracked = TrackedRun(run, record.created_ms, process.directory, sections.model_dump(mode="json"))
    return LearnerSetup(
        run,
        process.directory,
        sections,
        process.game(),
        bus=process.bus,
        ledger=process.ledger,
        store=open_store(config.store, directory=process.directory / "weights", client=process.client),
        tracker=open_trackers(config.tracking, tracked),
        consumer=beat.worker,
        make_ranks=make_ranks,
        local=local,
        created_ms=record.created_ms,
        progress=Opening(run, beat).turn,
        lease=lease,
        prefix=process.prefix(),
    ).open()


class Opening:
    """Signs of life of a learner that reads a long log: to systemd, in the log, by its heartbeat."""

    def __init__(self, run: str, beat: LearnerBeat, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._beat = beat
        self._clock = clock
        self._due = clock() + OPENING_EVERY_S

    def turn(self, what: str) -> None:
        """Called with every file and game that is read."""
        if self._clock() < self._due:
            return
        self._due = self._clock() + OPENING_EVERY_S
        notify(more_time(OPENING_MORE_S), f"STATUS=opening {self._run}: {what}")
        log.info("learner_opens", run=self._run, reads=what)
        self._beat.turn(None)


class LearnerBeat:
    """The learner's heartbeat in the control plane, with figures of its loop, and the watchdog's ping."""

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
        """Called while the learner makes progress, within a long step too; repeats the last figures once newer ones are late."""
        notify(WATCHDOG)
        if self._presence.due(2):  # due as soon as news is, it would come first at every interval, and news never
            with suppress(AzqError):  # the learner's own loop meets the same
                self._outage.attempt(self._known)

    def end(self) -> None:
        """Deletes the heartbeat, so that its life is not waited for."""
        notify(STOPPING)
        self._outage.attempt(lambda: self._presence.leave(self._bus))

    def _disk(self) -> dict[str, float]:
        try:
            return {DISK_FREE_BYTES: float(shutil.disk_usage(self._directory).free)}
        except OSError:  # a folder that is gone is the segment log's to report
            return {}
