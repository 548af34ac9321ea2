"""Puts a learner together from a run: fresh, from its newest checkpoint, or from its newest published weights.

What is where: games and samples inserted come from the segment log, steps and samples consumed from the checkpoint, the newest weight
version from the run's weights stream. So each survives the loss of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from azq import logs
from azq.bus.base import Bus
from azq.config import NetworkConfig, RunSections
from azq.errors import StateConflict, WeightsError
from azq.learner import checkpoint
from azq.learner.checkpoint import TrainState
from azq.learner.data.batches import Draws
from azq.learner.data.intake import Intake
from azq.learner.data.prefetch import feed_of
from azq.learner.data.restoring import game_key
from azq.learner.learner import NO_LOSSES, Learner, Parts, RunLedger
from azq.learner.publish import Blobs, Publisher
from azq.learner.ranks.follower import Follower, FollowerParts
from azq.learner.ranks.leader import Leader
from azq.learner.ranks.rules import MEETINGS, Place
from azq.learner.step.device import pick_device
from azq.learner.step.growth import WEIGHTS
from azq.learner.step.schedule import networks
from azq.learner.step.symmetry import Symmetric, Symmetries
from azq.learner.step.trainer import MeanLosses, Trainer
from azq.learner.team import Solo
from azq.learner.tracking import Tracker
from azq.ledger.types import LearnerLease
from azq.nets import NetSpec, Network, WeightsMeta, build
from azq.nets.spec import GameShape
from azq.nets.weights import describe
from azq.replay.columns import Columns
from azq.replay.follow import SegmentFollower
from azq.replay.samples import Rules, count_samples, count_trained
from azq.replay.segments import SegmentLog
from azq.replay.window import Window, rebuild
from azq.store.chunks import SUFFIX
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent, WeightEvent

MakeNetwork = Callable[[NetworkConfig], Network]
TakeNetwork = Callable[[Mapping[str, Any]], NetworkConfig]

log = logs.get(__name__)


class LearnerGame(Rules, Symmetric, GameShape, Protocol):
    """What the learner asks of a game."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Start:
    """Where training goes on."""

    state: TrainState | None
    published_step: int
    version: int
    network: NetworkConfig


def open_learner(
    run: str,
    directory: Path,
    sections: RunSections,
    game: LearnerGame,
    *,
    bus: Bus,
    ledger: RunLedger,
    store: Blobs,
    tracker: Tracker,
    consumer: str,
    place: Place | None = None,
    lease: LearnerLease | None = None,
    created_ms: int = 0,
    progress: Callable[[str], None] = lambda what: None,
) -> Learner:
    """The learner of a run whose folder is `directory`; with a `place` among several ranks, rank 0 of them; `lease` makes it the one.

    `created_ms` is the run's. `progress` is told, often, what is being read: a long log takes its time.

    Raises `SegmentError` or `StoreError` for damage on disk, `WeightsError` when the checkpoint does not fit the network's settings,
    `StateConflict` when it is of another game, `ConfigError` for a device that is not there or a head without targets.
    """
    config, key = sections.learner, game_key(sections)
    place = place or Place()
    device = pick_device(config.device, place.local)
    make_network = partial(build, game=NetSpec.of(game), seed=sections.run.seed)
    trainer = _trainer(sections, game, device, make_network)
    columns = Columns.of(game, sections.network.auxiliary)
    segments = SegmentLog(directory / "segments", key, count=partial(count_trained, game), created_ms=created_ms, progress=progress)
    window = Window(game, config.max_window, columns)
    rebuild(window, segments, game, config.root_value_fraction, capacity=config.max_window, columns=columns, progress=progress)
    publisher = Publisher(bus, store, run, announce=lambda frame: ledger.announce_weights(run, frame, lease))
    if next(publisher.announced(), None) is None:
        publisher.offer_again(_kept_weights(run, directory / "weights"))
    start = _restore(directory / "checkpoints", key, trainer, publisher, partial(_take_network, trainer, make_network, sections))
    publisher.version = start.version
    feed = feed_of(window, Draws(sections.run.seed, trainer.num_symmetries), config.prefetch_batches, device)
    team = Leader(run, bus, config, trainer, feed, place, directory / MEETINGS) if place.ranks > 1 else Solo(trainer, feed)
    intake = Intake(
        run,
        game,
        bus=bus,
        ledger=ledger,
        segments=segments,
        window=window,
        consumer=consumer,
        root_value_fraction=config.root_value_fraction,
        columns=columns,
        duplicates=start.state.duplicates_dropped if start.state else 0,
        phases=trainer.phases,
        lease=lease,
    )
    _log_start(run, trainer, segments, window, device, start)
    return Learner(
        Parts(
            run=run,
            game_key=key,
            meta=WeightsMeta(sections.run.game, params=dict(sections.run.params)),
            config=config,
            checkpoints=directory / "checkpoints",
            bus=bus,
            ledger=ledger,
            segments=segments,
            window=window,
            intake=intake,
            trainer=trainer,
            publisher=publisher,
            tracker=tracker,
            network=start.network,
            make_network=make_network,
            team=team,
            lease=lease,
            consumed=start.state.samples_consumed if start.state else 0,
            published_step=start.published_step,
            losses=MeanLosses(start.state.loss_policy, start.state.loss_value, 0) if start.state else NO_LOSSES,
        )
    )


def _kept_weights(run: str, folder: Path) -> Iterator[WeightEvent]:
    """The weights in a run's folder, as they were announced."""
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            meta = describe(path)
        except WeightsError as error:
            log.warning("weights_passed_over", file=path.name, reason=str(error))
            continue
        size = (int(meta.network.get(name, 0)) for name in ("blocks", "channels"))
        yield WeightEvent(run, meta.version, path.stem, f"file:{path.stem}", meta.step, int(path.stat().st_mtime * 1000), *size)


def open_follower(run: str, directory: Path, sections: RunSections, game: LearnerGame, *, bus: Bus, place: Place) -> Follower:
    """A rank other than 0, which sees the run's folder `directory`; raises what `open_learner` raises of settings and segments."""
    config = sections.learner
    device = pick_device(config.device, place.local)
    make_network = partial(build, game=NetSpec.of(game), seed=sections.run.seed)
    trainer = _trainer(sections, game, device, make_network)
    columns = Columns.of(game, sections.network.auxiliary)
    window = Window(game, -(-config.max_window // (place.ranks - 1)), columns)
    draws = Draws(sections.run.seed, trainer.num_symmetries, place.rank)
    return Follower(
        FollowerParts(
            run=run,
            place=place,
            meetings=directory / MEETINGS,
            config=config,
            game=game,
            columns=columns,
            bus=bus,
            segments=SegmentFollower(directory / "segments", config.max_window, lambda frame: count_samples(decode(frame, SampleEvent))),
            window=window,
            trainer=trainer,
            fit=partial(_fit, trainer, make_network, sections),
            feed=feed_of(window, draws, config.prefetch_batches, device),
        )
    )


def _fit(trainer: Trainer, make_network: MakeNetwork, sections: RunSections, tensors: Mapping[str, Tensor]) -> None:
    """Lets a rank's trainer train the network that rank 0's tensors are of, where the run goes through it; else it keeps its own."""
    wanted = {name.removeprefix(WEIGHTS): tensor.shape for name, tensor in tensors.items() if name.startswith(WEIGHTS)}
    if _shapes(trainer.module) == wanted:
        return
    modules = (make_network(network) for network in networks(sections.network, sections.learner))
    if (module := next((one for one in modules if _shapes(one) == wanted), None)) is not None:
        trainer.replace(module)


def _shapes(module: Network) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


def _trainer(sections: RunSections, game: LearnerGame, device: torch.device, make_network: MakeNetwork) -> Trainer:
    symmetries = Symmetries(game, device) if sections.learner.symmetries else None
    return Trainer(make_network(sections.network), NetSpec.of(game), sections.learner, device, symmetries)


def _take_network(trainer: Trainer, make_network: MakeNetwork, sections: RunSections, described: Mapping[str, Any]) -> NetworkConfig:
    """Lets the trainer train the network that a checkpoint or weights describe, where the run goes through it; else it keeps the first.

    Another one than these is left to whoever loads the tensors, who names what does not fit.
    """
    known = networks(sections.network, sections.learner)
    network = next((one for one in known if one.model_dump(mode="json") == described), sections.network)
    if network != sections.network:
        trainer.replace(make_network(network))
    return network


def _restore(checkpoints: Path, key: str, trainer: Trainer, publisher: Publisher, take_network: TakeNetwork) -> _Start:
    found = checkpoint.load_newest(checkpoints)
    if found is None:
        return _from_published(trainer, publisher, take_network)
    if found.state.game != key:
        raise StateConflict(f"checkpoints in {checkpoints} are of {found.state.game!r}, the run plays {key!r}; give the run another name")
    network = take_network(found.state.network)
    trainer.load_tensors(found.tensors, found.state.step)
    known = found.state.weight_version
    published = _last_published(publisher, known)
    step, version = (published.step, max(known, published.version)) if published else (-1, known)
    return _Start(found.state, step, version, network)


def _last_published(publisher: Publisher, known: int) -> WeightEvent | None:
    """The newest weights in the stream that can be served, as those up to a version that a checkpoint knows of."""
    for event in publisher.announced():
        if event.version <= known or any(publisher.whole([event])):
            return event
    return None


def _from_published(trainer: Trainer, publisher: Publisher, take_network: TakeNetwork) -> _Start:
    """Goes on from published weights where no checkpoint is left."""
    network, newest = take_network({}), next(publisher.whole(publisher.announced()), None)
    if newest is None:
        return _Start(None, -1, 0, network)
    event, (state, meta) = newest
    try:
        network = take_network(meta.network)
        trainer.load_weights(state, event.step)
    except WeightsError as error:
        log.warning("training_starts_over", reason=str(error), remedy="there was no checkpoint either")
        return _Start(None, 0, event.version, network)
    log.warning("no_checkpoint", used_weight_version=event.version, step=event.step)
    return _Start(None, event.step, event.version, network)


def _log_start(run: str, trainer: Trainer, segments: SegmentLog, window: Window, device: torch.device, start: _Start) -> None:
    log.info(
        "learner_opened",
        run=run,
        games=segments.games,
        samples=segments.samples,
        window=len(window),
        step=trainer.step,
        resumed=start.state is not None,
        device=str(device),
        precision=trainer.precision,
    )
