"""Builds a run's learner: fresh, from its newest checkpoint, or from its newest published weights.

Games and samples inserted come from the segment log, steps and samples consumed from the checkpoint, the newest weight
version from the run's weights stream. So each survives the loss of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

import torch

from azq import logs
from azq.bus.base import Bus
from azq.config import LearnerConfig, RunSections
from azq.errors import ConfigError, StateConflict, WeightsError
from azq.games import Game
from azq.learner import checkpoint
from azq.learner.checkpoint import Checkpoint
from azq.learner.data.batches import Draws, Feed, Prefetcher
from azq.learner.data.intake import Intake, game_key
from azq.learner.learner import Learner, TrainingStart
from azq.learner.lockstep import Lockstep, WitnessedFeed
from azq.learner.publish import Publisher
from azq.learner.replication.downloader import Downloader, download_if_possible, wanted_samples
from azq.learner.replication.remote_index import read_events
from azq.learner.replication.uploader import Uploader
from azq.learner.rounds import Ranks
from azq.learner.step.loss import Symmetries
from azq.learner.step.trainer import MeanLosses, Trainer
from azq.learner.tracking.tracker import Tracker
from azq.ledger import Ledger
from azq.ledger.types import LearnerLease
from azq.nets import NetSpec, WeightsMeta, build
from azq.nets.device import absent, is_there, pick_device, prepare_process
from azq.nets.weights import describe
from azq.process.proc import usable_cores
from azq.replay.samples import Columns, count_trained
from azq.replay.segments import SegmentLog
from azq.replay.window import Purges, Window, rebuild
from azq.store import Store
from azq.store.chunks import CHUNK_BYTES, SUFFIX
from azq.store.objects import ObjectPrefix
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent, WeightEvent

log = logs.get(__name__)


def training_device(config: LearnerConfig, local: int = 0) -> torch.device:
    """Where this process trains, as number `local` of those on its host. Raises as `azq.nets.device.absent`.

    All named devices have to exist, so that rank 0 fails before it starts ranks that could not train.
    """
    names = config.devices
    if not names:
        return pick_device(config.device, "learner.device", local)
    if missing := [name for name in names if not is_there(torch.device(name))]:
        raise absent(f"learner.devices names {', '.join(missing)},", torch.device(missing[0]).type)
    if local >= len(names):
        raise ConfigError(f"learner.devices names {len(names)} devices, and this is process {local} of its host, from 0; name one for each")
    return pick_device(names[local], "learner.devices")


def prepare_training(config: LearnerConfig, local: int = 0) -> torch.device:
    """Configures torch for training in this process; returns the device. Raises as `training_device`."""
    device = training_device(config, local)
    prepare_process(pick_threads(config, device))
    # Kernels are searched for once a shape, and the rows of a rank change all the time.
    torch.backends.cudnn.benchmark = device.type == "cuda" and config.ranks == 1
    return device


def pick_threads(config: LearnerConfig, device: torch.device) -> int:
    """Threads for torch: the setting, else a rank's share of half the cores on a CPU, since self-play wants the others."""
    return config.threads or (max(1, usable_cores() // 2 // config.ranks) if device.type == "cpu" else 1)


@dataclass(eq=False)
class LearnerSetup:
    """The parts of a run's learner, and how they are assembled."""

    run: str
    directory: Path  # of the run
    sections: RunSections
    game: Game
    _: KW_ONLY
    bus: Bus
    ledger: Ledger
    store: Store
    tracker: Tracker
    consumer: str
    make_ranks: Callable[[Trainer, Feed], Ranks[Trainer]] = Ranks  # those that train: this process alone, or more
    local: int = 0  # this process's number among the ranks of its host
    lease: LearnerLease | None = None  # makes it the one learner of the run
    created_ms: int = 0  # when the run was
    prefix: ObjectPrefix | None = None  # of the run in its store, where that keeps games and checkpoints
    most_bytes: int = CHUNK_BYTES  # of one object there
    progress: Callable[[str], None] = lambda what: None  # called often with what is being read: a long log takes its time

    def open(self) -> Learner:
        """The learner.

        Raises `SegmentError` or `StoreError` for damage on disk, `WeightsError` when the checkpoint does not fit the network's settings,
        `StateConflict` when it is of another game, `ConfigError` for a device that is not there or a head without targets.
        """
        config = self.sections.learner
        self._fetch()
        trainer, columns = open_trainer(self.sections, self.game, self.local)
        intake = self._intake(columns)
        publisher = self._publisher()
        saved = checkpoint.load_newest(self.directory / "checkpoints")
        start = self._start(saved, intake, trainer, publisher)
        publisher.version, intake.duplicates = start.version, start.duplicates
        _log_start(intake, trainer, start)
        return Learner(
            config=config,
            meta=WeightsMeta(self.sections.run.game, params=dict(self.sections.run.params)),
            checkpoints=self.directory / "checkpoints",
            intake=intake,
            network=self.sections.network,
            trainer=trainer,
            ranks=self._ranks(trainer, intake),
            publisher=publisher,
            tracker=self.tracker,
            start=start,
            lockstep=intake.lockstep,
        )

    def _fetch(self) -> None:
        """Downloads what the folder lacks of the store: everything on a new host."""
        if self.prefix is not None:
            wanted = wanted_samples(self.sections.learner)
            download_if_possible(Downloader(self.prefix, self.directory, wanted, self.progress), self.directory, self._token())

    def _token(self) -> int:
        return self.lease.token if self.lease else 1

    def _uploader(self, segments: SegmentLog) -> Uploader | None:
        return Uploader(self.prefix, self.directory, segments, self._token(), self.most_bytes) if self.prefix else None

    def _start(self, saved: Checkpoint | None, intake: Intake, trainer: Trainer, publisher: Publisher) -> TrainingStart:
        if saved is not None:
            return _restore(saved, intake.segments.game, trainer, publisher)
        if intake.lockstep is None:
            return _from_published(trainer, publisher)
        newest = _last_published(publisher, 0)  # whose optimiser is lost: all steps up to it are taken again
        return TrainingStart(newest.step if newest else -1, newest.version if newest else 0)

    def _intake(self, columns: Columns) -> Intake:
        config, count = self.sections.learner, partial(count_trained, self.game)
        folder, key = self.directory / "segments", game_key(self.sections)
        segments = SegmentLog(folder, key, count=count, created_ms=self.created_ms, progress=self.progress)
        window = Window(self.game, config.max_window, columns)
        purges = Purges(folder)
        lockstep = Lockstep(config, self.game, window) if config.lockstep_games else None
        if lockstep is not None:
            lockstep.bring(decode(frame, SampleEvent) for frame in segments.tail(segments.samples + 1))
        else:
            rebuild(window, segments, self.game, purges=purges, progress=self.progress)
        return Intake(
            self.run,
            self.game,
            bus=self.bus,
            ledger=self.ledger,
            segments=segments,
            window=window,
            consumer=self.consumer,
            lease=self.lease,
            purges=purges,
            lockstep=lockstep,
            uploader=self._uploader(segments),
            most_unacked=self.sections.selfplay.max_waiting_games // 2,
        )

    def _publisher(self) -> Publisher:
        """Announces the weights of the folder or the store again where the stream is empty."""
        announce = partial(self.ledger.announce_weights, self.run, lease=self.lease)
        publisher = Publisher(self.bus, self.store, self.run, announce=announce, prefix=self.prefix)
        if next(publisher.announced(), None) is None:
            stored = read_events(self.prefix) if self.prefix else []
            publisher.offer_again([*stored, *_stored_weights(self.run, self.directory / "weights")])
        return publisher

    def _ranks(self, trainer: Trainer, intake: Intake) -> Ranks[Trainer]:
        draws = Draws(self.sections.run.seed, trainer.num_symmetries)
        feed: Feed = Prefetcher(intake.window, draws, trainer.device)
        if intake.lockstep is not None:
            feed = WitnessedFeed(feed, intake.lockstep)
        return self.make_ranks(trainer, feed)


def _stored_weights(run: str, folder: Path) -> Iterator[WeightEvent]:
    """Events of the weights in a run's folder."""
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            meta = describe(path)
        except WeightsError as error:
            log.warning("weights_passed_over", file=path.name, reason=str(error))
            continue
        blocks, channels = (int(meta.network.get(name, 0)) for name in ("blocks", "channels"))
        yield WeightEvent(run, meta.version, path.stem, f"file:{path.stem}", meta.step, int(path.stat().st_mtime * 1000), blocks, channels)


def open_trainer(sections: RunSections, game: Game, local: int = 0) -> tuple[Trainer, Columns]:
    """A run's network in training, and the columns that its samples need; `local` as in `training_device`."""
    device, spec = training_device(sections.learner, local), NetSpec.of(game)
    symmetries = Symmetries(game, device) if sections.learner.symmetries else None
    trainer = Trainer(build(sections.network, spec, seed=sections.run.seed), spec, sections.learner, device, symmetries)
    return trainer, Columns.of(game, sections.network.auxiliary, sections.learner)


def _restore(saved: Checkpoint, key: str, trainer: Trainer, publisher: Publisher) -> TrainingStart:
    state = saved.state
    if state.game != key:
        raise StateConflict(f"the run's checkpoints are of {state.game!r}, the run plays {key!r}; give the run another name")
    trainer.load_tensors(saved.tensors, state.step)
    published = _last_published(publisher, state.weight_version)
    return TrainingStart(
        published.step if published else -1,
        max(state.weight_version, published.version if published else 0),
        state.samples_consumed,
        state.duplicates_dropped,
        MeanLosses(state.loss_policy, state.loss_value, 0),
        resumed=True,
    )


def _last_published(publisher: Publisher, checkpointed: int) -> WeightEvent | None:
    """The newest event in the stream whose weights can be served; those up to a checkpointed version can."""
    for event in publisher.announced():
        if event.version <= checkpointed or any(publisher.whole([event])):
            return event
    return None


def _from_published(trainer: Trainer, publisher: Publisher) -> TrainingStart:
    """Starts from published weights where no checkpoint is left."""
    newest = next(publisher.whole(publisher.announced()), None)
    if newest is None:
        return TrainingStart()
    event, (state, _) = newest
    try:
        trainer.load_weights(state, event.step)
    except WeightsError as error:
        log.warning("training_starts_over", reason=str(error), remedy="there was no checkpoint either")
        return TrainingStart(0, event.version)
    log.warning("no_checkpoint", used_weight_version=event.version, step=event.step)
    return TrainingStart(event.step, event.version)


def _log_start(intake: Intake, trainer: Trainer, start: TrainingStart) -> None:
    log.info(
        "learner_opened",
        run=intake.run,
        games=intake.segments.games,
        samples=intake.segments.samples,
        window=len(intake.window),
        step=trainer.step,
        resumed=start.resumed,
        device=str(trainer.device),
        precision=trainer.precision,
    )
