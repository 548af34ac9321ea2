"""The learner's loop: take in games, train while the limiter allows, publish, checkpoint; one thread, so no locks.

Phases are bounded by time, so that neither training nor intake keeps the other waiting for more than a fraction of a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import LearnerConfig, NetworkConfig
from azq.errors import StoreError
from azq.goals import Done, Goals
from azq.learner import checkpoint
from azq.learner.burst import Burst
from azq.learner.checkpoint import Checkpoint, TrainState
from azq.learner.data.intake import BATCH, InsertLedger, Intake
from azq.learner.outage import Outage
from azq.learner.publish import Publisher
from azq.learner.step.schedule import network_at
from azq.learner.step.trainer import MeanLosses, Trainer
from azq.learner.strength import Strength
from azq.learner.team import Team
from azq.learner.tracking import Tracker
from azq.ledger.types import LearnerLease, RunState, RunView
from azq.metrics import Rate
from azq.nets import Network, WeightsMeta, to_bytes
from azq.phases import Phases
from azq.process.interrupts import StopSign
from azq.replay.limiter import stall_selfplay, steps_allowed
from azq.replay.segments import SegmentLog
from azq.replay.window import Window, window_size
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import LearnerStatus

PHASE_S = 0.25  # longest intake or training phase
IDLE_S = 0.1  # between two reads while there is nothing to train on: games come one by one, and are cheaper to take in together
STATUS_EVERY_S = 2.0
RENEW_EVERY_S = 2.0
STATUS_LIFE_S = 30.0
DRAIN_S = 10.0
NO_LOSSES = MeanLosses(0.0, 0.0, 0)

log = logs.get(__name__)


class RunLedger(InsertLedger, Protocol):
    """What the learner asks of the ledger."""

    def run(self, name: str) -> RunView: ...
    def renew_learner(self, lease: LearnerLease) -> None: ...
    def announce_weights(self, run: str, frame: bytes, lease: LearnerLease | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a learner is made of; `azq.learner.opening` puts it together."""

    run: str
    game_key: str
    meta: WeightsMeta  # of its weights; version, step and network are filled in
    config: LearnerConfig
    checkpoints: Path
    bus: Bus
    ledger: RunLedger
    segments: SegmentLog
    window: Window
    intake: Intake
    trainer: Trainer
    publisher: Publisher
    tracker: Tracker
    network: NetworkConfig  # as large as it is now
    make_network: Callable[[NetworkConfig], Network]  # freshly initialised
    team: Team  # of the trainer
    lease: LearnerLease | None = None  # its place in the control plane, where others may want it
    consumed: int = 0
    published_step: int = -1  # of the newest weights that this learner's own follow
    losses: MeanLosses = NO_LOSSES


class Learner:
    """Runs until it is told to stop; may be run once."""

    def __init__(self, parts: Parts, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._config = parts.config
        self._clock = clock
        self._phases = parts.trainer.phases
        self._outage = Outage(clock=clock)
        self._voice = Outage(lines=("status_unsaid", "status_said"), clock=clock)  # a server without memory takes none, and must be drained
        self._disk = Outage(StoreError, ("disk_refuses", "disk_takes"), clock=clock)
        self._strength = Strength()
        self._rate = Rate()
        self._consumed = parts.consumed
        self._losses = parts.losses
        self._network = parts.network
        self._published_step = parts.published_step
        self._progress = 0.0
        self._step_s = PHASE_S  # of one training step, as the last ones took
        self._running = True
        self._agreed = False  # with the ledger; nothing is written before
        self._leftovers = True  # entries read and not acknowledged may wait
        self._due = {"place": 0.0, "status": 0.0, "publish": 0.0, "checkpoint": clock() + parts.config.checkpoint_every_s}

    def run(self, stop: StopSign, on_turn: Callable[[LearnerStatus], None] = lambda status: None) -> None:
        """Learns until `stop` is set, then takes in what the stream still holds, publishes and writes a checkpoint.

        `on_turn` is called at least every second. Raises `BrokerRefused` when the broker turns us away, `NotFound` when the run is gone,
        `WeightsError` when training diverges, `StateConflict` when another learner took its place; an absent broker and a disk that
        takes nothing are waited for, games stay unacknowledged meanwhile. Raises `StoreError` when the last checkpoint cannot be written.
        """
        while not stop.is_set():
            self.turn(stop)
            on_turn(self.status())
        self.finish(on_turn)

    def turn(self, stop: StopSign) -> None:
        """One round: what is due, intake, training."""
        if not self._agreed:
            self._take_in()
        if self._agreed:
            self._do_due()
        busy = self._steps_allowed() > 0
        if not busy:
            with self._phases("idle"):
                stop.wait(IDLE_S)
        self._take_in()
        self._parts.team.look()
        if not stop.is_set():
            self._train()

    def finish(self, on_turn: Callable[[LearnerStatus], None] = lambda status: None) -> None:
        """Drains the stream (10 seconds at most), publishes, writes the last checkpoint."""
        end = self._clock() + DRAIN_S
        while self._clock() < end:
            if not self._take_in() and not self._leftovers:
                break
            if self._outage.active or self._disk.active:
                threading.Event().wait(0.05)
            on_turn(self.status())
        self._publish_if_possible()
        self._save()
        self._voice.attempt(self._say)
        self._parts.team.close()
        self._parts.tracker.flush()
        log.info(
            "learner_stopped", step=self._parts.trainer.step, games=self._parts.segments.games, weight_version=self._parts.publisher.version
        )

    @property
    def phases(self) -> Phases:
        """Where its time goes."""
        return self._phases

    def status(self) -> LearnerStatus:
        """The learner's figures now."""
        parts, inserted, team = self._parts, self._parts.segments.samples, self._parts.team.figures()
        return LearnerStatus(
            step=parts.trainer.step,
            samples_inserted=inserted,
            samples_consumed=self._consumed,
            games_inserted=parts.segments.games,
            duplicates_dropped=parts.intake.duplicates,
            window=self._window_size(),
            loss_policy=self._losses.policy,
            loss_value=self._losses.value,
            learning_rate=parts.trainer.learning_rate,
            weight_version=parts.publisher.version,
            stall_selfplay=stall_selfplay(inserted, self._consumed, self._config),
            waiting=not steps_allowed(inserted, self._consumed, self._config),
            samples_per_s=self._rate.per_s(),
            sent_ms=now_ms(),
            progress=self._progress,
            ranks=team.ranks,
            ranks_healthy=team.healthy,
            rank_failures=team.failures,
            batch_s=team.batch_s,
            sync_s=team.sync_s,
            scaling_efficiency=team.efficiency,
        )

    def _take_in(self) -> int:
        end, total = self._clock() + PHASE_S, 0
        while True:
            seen = self._outage.attempt(partial(self._disk.attempt, self._read))
            if seen is None:  # what was read and not acknowledged is asked for again
                self._leftovers = True
                return total
            total += seen
            if seen < BATCH or self._clock() >= end:
                return total

    def _read(self) -> int:
        if self._leftovers:
            self._parts.intake.agree_with_ledger()
            self._agreed = True
            claimed = self._parts.intake.claim_leftovers()
            self._leftovers = False
            if claimed:
                log.info("leftovers_claimed", games=claimed)
        return self._parts.intake.read()

    def _steps_allowed(self) -> int:
        return steps_allowed(self._parts.segments.samples, self._consumed, self._config) if self._running else 0

    def _window_size(self) -> int:
        return min(window_size(self._parts.segments.samples, self._config), len(self._parts.window))

    def _train(self) -> None:
        steps = min(self._steps_allowed(), max(1, int(PHASE_S / self._step_s)))
        if not steps:
            return
        start, batch = self._clock(), self._config.batch_size
        done = self._parts.team.train(Burst(self._parts.trainer.step, steps, batch, self._window_size(), self._progress))
        self._step_s = max(1e-6, (self._clock() - start) / max(1, done))
        self._consumed += done * batch
        self._rate.add(done * batch)

    def _do_due(self) -> None:
        if self._parts.lease and self._is_due("place", RENEW_EVERY_S):
            self._outage.attempt(partial(self._parts.ledger.renew_learner, self._parts.lease))
        if self._is_due("status", STATUS_EVERY_S):
            self._voice.attempt(self._say)
            # A broker may die, lose its last commands and be back before the next call, which then says nothing of it.
            self._leftovers = True
        if self._is_due("publish", self._config.publish_every_s):
            self._publish_if_possible()
        if self._is_due("checkpoint", self._config.checkpoint_every_s):
            with self._phases("checkpoint"):
                self._disk.attempt(self._save)

    def _publish_if_possible(self) -> None:
        with self._phases("publish"):
            self._outage.attempt(partial(self._disk.attempt, self._publish))

    def _is_due(self, what: str, every_s: float) -> bool:
        now = self._clock()
        if now < self._due[what]:
            return False
        self._due[what] = now + every_s
        return True

    def _say(self) -> None:
        """Tells the run's readers how it goes, and learns how the run goes."""
        bus, run = self._parts.bus, self._parts.run
        self._follow_run(self._parts.ledger.run(run))
        self._look_at_losses()
        status = self.status()
        bus.put(keys.learner_status(run), encode(status), life_s=STATUS_LIFE_S)
        if status.stall_selfplay:
            bus.put(keys.stall(run), b"1", life_s=STATUS_LIFE_S)
        else:
            bus.delete(keys.stall(run))

    def _follow_run(self, view: RunView) -> None:
        parts = self._parts
        self._progress = Goals(view.record.until).progress(Done.of(view.active_ms, parts.segments.games, parts.trainer.step))
        running = view.state is RunState.RUNNING
        if self._running and not running:  # who looks at a paused or finished run finds its newest weights
            log.info("run_stopped", state=str(view.state), reason=view.reason)
            self._disk.attempt(self._publish)
            self._disk.attempt(self._save)
        self._running = running
        self._grow()

    def _grow(self) -> None:
        """Goes on with the next larger network when its time has come; what it says does not change."""
        parts, wanted = self._parts, network_at(self._network, self._config, self._progress)
        if wanted != self._network:
            parts.trainer.grow(parts.make_network(wanted))
            log.info("network_grown", blocks=wanted.blocks, channels=wanted.channels, step=parts.trainer.step)
            self._network = wanted

    def _look_at_losses(self) -> None:
        losses = self._parts.trainer.mean_losses()
        if losses.steps:
            self._losses = losses

    def _publish(self) -> None:
        """Publishes when there is something new; the first weights go out before any data is in."""
        parts = self._parts
        step = parts.trainer.step
        if step <= self._published_step:
            return
        self._look_at_losses()
        version = parts.publisher.next_version()
        data = to_bytes(parts.trainer.averaged, self._stamped(version, step))
        event = parts.publisher.publish(data, version, step, blocks=self._network.blocks, channels=self._network.channels)
        self._published_step = step
        log.info("weights_published", version=version, step=step, sha256=event.sha256[:12])
        self._track()
        parts.trainer.reset_losses()

    def _stamped(self, version: int, step: int) -> WeightsMeta:
        return replace(self._parts.meta, version=version, step=step, network=self._network.model_dump(mode="json"))

    def _track(self) -> None:
        parts, status = self._parts, self.status()
        values = {
            "loss/policy": status.loss_policy,
            "loss/value": status.loss_value,
            "train/lr": status.learning_rate,
            "train/samples_per_s": status.samples_per_s,
            "ranks/healthy": float(status.ranks_healthy),
            "ranks/scaling_efficiency": status.scaling_efficiency,
            "replay/samples_per_insert": status.samples_consumed / max(1, status.samples_inserted),
            "replay/window": float(status.window),
            "replay/games": float(status.games_inserted),
            "selfplay/policy_lag": max(0.0, status.weight_version - parts.intake.mean_weight_version),
            "selfplay/plies": status.samples_inserted / max(1, status.games_inserted),
            "weights/version": float(status.weight_version),
        }
        values |= {f"loss/{head}": loss for head, loss in self._losses.others.items()}
        parts.tracker.scalars(values | self._strength.read(parts.bus, parts.run), status.step)
        parts.tracker.flush()

    def _save(self) -> None:
        parts = self._parts
        state = TrainState(
            schema=checkpoint.SCHEMA,
            game=parts.game_key,
            step=parts.trainer.step,
            samples_consumed=self._consumed,
            duplicates_dropped=parts.intake.duplicates,
            weight_version=parts.publisher.version,
            loss_policy=self._losses.policy,
            loss_value=self._losses.value,
            network=self._network.model_dump(mode="json"),
            shares=parts.team.figures().shares,
        )
        path = checkpoint.save(parts.checkpoints, Checkpoint(state, parts.trainer.tensors()))
        log.info("checkpoint_written", file=path.name, step=state.step)
