"""The learner's loop: train while the limiter allows, publish, checkpoint; games are taken in by a thread beside it.

Rounds of training are bounded by time, so that nothing that is due waits for more than a fraction of a second.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import InitVar, dataclass, replace
from functools import partial
from pathlib import Path

from azq import logs
from azq.clock import now_ms, now_ns
from azq.config import LearnerConfig, NetworkConfig
from azq.errors import StoreError
from azq.goals import Done, Goals
from azq.learner import checkpoint
from azq.learner.checkpoint import Checkpoint, TrainState
from azq.learner.curves import ResultCurves
from azq.learner.data.intake import Intake
from azq.learner.data.intake_loop import IntakeLoop
from azq.learner.lockstep import Lockstep
from azq.learner.publish import Publisher
from azq.learner.replication.uploader import Uploader
from azq.learner.rounds import Ranks, TrainingRound
from azq.learner.step.stepper import AVERAGE, under
from azq.learner.step.trainer import MeanLosses, Trainer
from azq.learner.tracking.tracker import Tracker
from azq.ledger.types import RunState, RunView
from azq.metrics import Rate
from azq.nets import WeightsMeta
from azq.nets.weights import state_to_bytes
from azq.phases import beside
from azq.process.breaker import CircuitBreaker
from azq.process.interrupts import StopSign
from azq.process.liveness import WorkWatch
from azq.replay.window import stall_selfplay, steps_allowed, window_size
from azq.tracing import SAMPLE_EVENT, STEP, TRACES, WEIGHT_VERSION, trace_of
from azq.waiting import MOST_DOUBLINGS
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import LearnerStatus

PHASE_S = 0.25  # longest round of training
IDLE_S = 0.1  # between two checks while there is nothing to train on
STATUS_EVERY_S = 2.0
STATUS_LIFE_S = 30.0
DRAIN_S = 10.0
NO_LOSSES = MeanLosses(0.0, 0.0, 0)
SOON_S = 5.0  # until a resumed learner's first checkpoint; each further pause is twice as long, up to the setting

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class TrainingStart:
    published_step: int = -1  # of the newest weights that this learner's own follow
    version: int = 0  # of the newest weights
    consumed: int = 0
    duplicates: int = 0
    losses: MeanLosses = NO_LOSSES
    resumed: bool = False  # from a checkpoint


@dataclass(kw_only=True, eq=False)
class Learner:
    """Trains until it is stopped; runs once. `azq.learner.opening` builds it."""

    config: LearnerConfig
    meta: WeightsMeta  # of its weights; version, step and network are filled in
    checkpoints: Path
    intake: Intake  # of its run, with the run's segment log, ledger, bus and place
    network: NetworkConfig
    trainer: Trainer
    ranks: Ranks[Trainer]  # the trainer's, and others
    publisher: Publisher
    tracker: Tracker
    start: InitVar[TrainingStart]
    lockstep: Lockstep | None = None
    clock: Callable[[], float] = time.monotonic

    @property
    def uploader(self) -> Uploader | None:
        """Uploads the run to its store, where that keeps games."""
        return self.intake.uploader

    def __post_init__(self, start: TrainingStart) -> None:
        self._broker = CircuitBreaker(clock=self.clock)
        # A server without memory refuses reports and must be drained.
        self._voice = CircuitBreaker(lines=("status_unsaid", "status_said"), clock=self.clock)
        self._disk = CircuitBreaker(StoreError, ("disk_refuses", "disk_takes"), clock=self.clock)
        self.phases = self.trainer.phases
        self.taking = IntakeLoop(self.intake, self.clock)
        self._results = ResultCurves()
        self._rate = Rate()
        self._consumed, self._losses = start.consumed, start.losses
        self._published_step = start.published_step
        self._progress = 0.0
        self._step_s = PHASE_S  # of one training step, as the last ones took
        self._running = True
        self._watch = WorkWatch()
        # When what is due now and then was done last. Without a checkpoint one is due before the first step, which may take long.
        self._done_s = {"checkpoint": self.clock()} if start.resumed else {}
        self._saves, self._saved = 0, (self.trainer.step, start.version) if start.resumed else (-1, -1)
        self._done_step: dict[str, int] = {}  # and at which step
        self._trained: list[bytes] = []  # traced games that are in no published weights yet
        self._began_at = self._new_at = self.trainer.step  # `_new_at`: no step of these shapes before

    def run(self, stop: StopSign, on_turn: Callable[[LearnerStatus], None] = lambda status: None, watch: WorkWatch | None = None) -> None:
        """Trains until `stop` is set, then drains the stream, publishes and writes a checkpoint.

        `on_turn` is called after each turn while all threads get on; `watch` is marked within turns, too, by each phase of a step.
        Raises `BrokerRefused` when the broker refuses this process, `NotFound` when the run is gone, `WeightsError` when training diverges,
        `StateConflict` when another learner took its place, `StoreError` when the last checkpoint cannot be written. A lost broker and a
        full disk are waited for; games stay unacknowledged meanwhile.
        """
        self._watch = watch = watch or self._watch
        watch.others_get_on, self.phases.on_switch = lambda: self.taking.gets_on, watch.mark
        self.trainer.on_new_shape = self._expect_slow_step
        with self.uploader.beside() if self.uploader else contextlib.nullcontext():
            with self.taking.beside():
                while not stop.is_set():
                    self.turn(stop)
                    if self.taking.lives() and (self.uploader is None or self.uploader.lives()):
                        on_turn(self.status())
            self.finish(on_turn)
        if self.uploader is not None:
            self.uploader.finish(DRAIN_S)

    def turn(self, stop: StopSign) -> None:
        """Does what is due, then a round of training."""
        if self.taking.agreed:
            self._do_due()
        if not self._steps_allowed():
            with self.phases("idle"):
                stop.wait(IDLE_S)
        self.ranks.poll()
        if not stop.is_set():
            self._train()

    def finish(self, on_turn: Callable[[LearnerStatus], None] = lambda status: None) -> None:
        """Drains the stream (10 seconds at most), publishes, writes the last checkpoint."""
        self.taking.drain(DRAIN_S, lambda: on_turn(self.status()))
        self._publish_if_possible()
        with self._watch.does("end"):
            self.save()
            self._voice.attempt(self.report)
            self.ranks.close()
            self.tracker.close()
        log.info("learner_stopped", step=self.trainer.step, games=self.intake.segments.games, weight_version=self.publisher.version)

    def shares(self) -> dict[str, float]:
        """Shares of this process's time by phase, for heartbeats."""
        return beside(self.phases.shares(), "intake", self.taking.cores)

    def status(self) -> LearnerStatus:
        inserted, ranks = self.intake.segments.samples, self.ranks.figures()
        return LearnerStatus(
            step=self.trainer.step,
            samples_inserted=inserted,
            samples_consumed=self._consumed,
            games_inserted=self.intake.segments.games,
            duplicates_dropped=self.intake.duplicates,
            window=self._window_size(),
            loss_policy=self._losses.policy,
            loss_value=self._losses.value,
            learning_rate=self.trainer.learning_rate,
            weight_version=self.publisher.version,
            stall_selfplay=self.lockstep is None and stall_selfplay(inserted, self._consumed, self.config),
            waiting=not steps_allowed(inserted, self._consumed, self.config),
            samples_per_s=self._rate.per_s(),
            sent_ms=now_ms(),
            progress=self._progress,
            ranks=ranks.ranks,
            ranks_healthy=ranks.healthy,
            rank_failures=ranks.failures,
            batch_s=ranks.batch_s,
            sync_s=ranks.sync_s,
            scaling_efficiency=ranks.efficiency,
            each_rank=ranks.by_rank,
            games_alone=self.intake.unacked.alone,
        )

    def _steps_allowed(self) -> int:
        if self.lockstep is not None:
            return self.lockstep.steps_allowed(self.trainer.step) if self._running else 0
        return steps_allowed(self.intake.segments.samples, self._consumed, self.config) if self._running else 0

    def _window_size(self) -> int:
        inserted = self.intake.window.total if self.lockstep is not None else self.intake.segments.samples
        return min(window_size(inserted, self.config), len(self.intake.window))

    def _train(self) -> None:
        steps = min(self._steps_allowed(), max(1, int(PHASE_S / self._step_s)), steps_until_due(self.trainer.step, self.config))
        size = self._window_size()
        if not steps or not size:  # the first games may be on disk, and so allow steps, a moment before they are in the window
            return
        start, began_ns, batch = self.clock(), now_ns(), self.config.batch_size
        with self._watch.does("step"):
            done = self.ranks.train(TrainingRound(self.trainer.step, steps, batch, size, self._progress))
        self._step_s = max(1e-6, (self.clock() - start) / max(1, done))
        self._rate.add(done * batch)
        self._consumed += done * batch
        traced = [self.intake.traced.popleft() for _ in range(len(self.intake.traced) if done else 0)]
        TRACES.add((STEP,), traced, began_ns, below=(SAMPLE_EVENT,), step=self.trainer.step)
        self._trained += traced

    def _do_due(self) -> None:
        if self._is_due("status", STATUS_EVERY_S):
            self._voice.attempt(self.report)
        if self.lockstep is not None or self._is_due("publish", self.config.publish_every_s, self.config.publish_every_steps):
            self._publish_if_possible()
        if self._is_due("checkpoint", self._checkpoint_every_s(), self.config.checkpoint_every_steps):
            self._checkpoint()

    def _checkpoint_every_s(self) -> float:
        """Short at first, so that a learner that dies early does not start from nothing."""
        return min(self.config.checkpoint_every_s, SOON_S * 2.0 ** min(self._saves, MOST_DOUBLINGS))

    def _checkpoint(self) -> None:
        with self._watch.does("checkpoint"), self.phases("checkpoint"):
            self._disk.attempt(self.save)
            self._watch.done("checkpoint")

    def _publish_if_possible(self) -> None:
        with self._watch.does("publish"), self.phases("publish"):
            self._broker.attempt(partial(self._disk.attempt, self.publish))
            self._watch.done("publish")

    def _is_due(self, what: str, every_s: float, every_steps: int = 0) -> bool:
        """Whether the time is over, or a multiple of the steps was passed; it is taken for done then."""
        now, step = self.clock(), self.trainer.step
        by_steps = every_steps and step // every_steps > self._done_step.get(what, self._began_at) // every_steps
        if not by_steps and now < self._done_s.get(what, float("-inf")) + every_s:
            return False
        self._done_s[what], self._done_step[what] = now, step
        return True

    def report(self) -> None:
        """Writes the learner's status and reads the run's state."""
        bus, run = self.intake.bus, self.intake.run
        self._follow_run(self.intake.ledger.run(run))
        self._read_losses()
        status = self.status()
        bus.put(keys.learner_status(run), encode(status), life_s=STATUS_LIFE_S)
        bus.put(keys.learned(run), encode(status))
        if status.stall_selfplay:
            bus.put(keys.stall(run), b"1", life_s=STATUS_LIFE_S)
        else:
            bus.delete(keys.stall(run))

    def _follow_run(self, view: RunView) -> None:
        self._progress = Goals(view.record.until).progress(Done.of(view.active_ms, self.intake.segments.games, self.trainer.step))
        if self.uploader is not None:
            self.uploader.record = view.record
        running = view.state is RunState.RUNNING
        if self._running and not running:  # a paused or finished run has its newest weights published
            log.info("run_stopped", state=str(view.state), reason=view.reason)
            self._disk.attempt(self.publish)
            self._checkpoint()
        self._running = running

    def _expect_slow_step(self) -> None:
        """Expects a long step: for new shapes the device searches kernels again."""
        self._watch.done("step", once=False)
        self._new_at = self.trainer.step

    def _read_losses(self) -> None:
        losses = self.trainer.mean_losses()
        if losses.steps:
            self._losses = losses
        if self.trainer.step > self._new_at:
            self._watch.done("step")  # and the device is done with it, too

    def publish(self) -> None:
        """Publishes when there is something new; the first weights go out before any data is in, in lockstep only whole versions."""
        if self.trainer.step <= self._published_step or (self.lockstep is not None and not self.lockstep.is_version(self.trainer.step)):
            return
        state, step, began_ns = under(AVERAGE, self.trainer.tensors()), self.trainer.step, now_ns()
        self._read_losses()
        version = self.publisher.next_version()
        meta = replace(self.meta, version=version, step=step, network=self.network.description())
        data = state_to_bytes(state, meta)
        fields = {"blocks": self.network.blocks, "channels": self.network.channels, **(self.lockstep.witnessed() if self.lockstep else {})}
        samples = self.intake.segments.samples if self.lockstep is None else 0  # so far; in lockstep events depend on the version alone
        event = self.publisher.publish(data, version, step, samples=samples, **fields)
        self._published_step = step
        log.info("weights_published", version=version, step=step, sha256=event.sha256[:12])
        weights = trace_of("weights", event.sha256)
        TRACES.add((WEIGHT_VERSION,), [weights], began_ns, version=version)
        TRACES.add((WEIGHT_VERSION,), self._trained, began_ns, below=(STEP,), links={weights: WEIGHT_VERSION}, version=version)
        self._trained = []
        self._track()
        self.trainer.reset_losses()

    def _track(self) -> None:
        status = self.status()
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
            "selfplay/policy_lag": max(0.0, status.weight_version - self.intake.mean_weight_version),
            "selfplay/plies": status.samples_inserted / max(1, status.games_inserted),
            "weights/version": float(status.weight_version),
        }
        values |= {f"loss/{head}": loss for head, loss in self._losses.others.items()}
        values |= {name.replace("_", "/", 1): share for name, share in self.shares().items()}
        self.tracker.scalars(values | self._results.read(self.intake.bus, self.intake.run), status.step)

    def save(self) -> None:
        """Writes a checkpoint, in lockstep only of published weights, from which the next versions follow.

        Raises `StoreError`.
        """
        if self.lockstep is not None and self.trainer.step > self._published_step:
            return
        now = self.trainer.step, self.publisher.version
        if now == self._saved:
            return
        ranks = self.ranks.figures()
        state = TrainState(
            schema=checkpoint.SCHEMA,
            game=self.intake.segments.game,
            step=self.trainer.step,
            samples_consumed=self._consumed,
            duplicates_dropped=self.intake.duplicates,
            weight_version=self.publisher.version,
            loss_policy=self._losses.policy,
            loss_value=self._losses.value,
            network=self.network.description(),
            shares=ranks.shares,
            ranks=ranks.by_rank,
        )
        path = checkpoint.save(self.checkpoints, Checkpoint(state, self.trainer.tensors()))
        self._saves, self._saved = self._saves + 1, now
        log.info("checkpoint_written", file=path.name, step=state.step)


def steps_until_due(step: int, config: LearnerConfig) -> int:
    """Steps to the next at which weights or a checkpoint are due by steps; a great many where none are. Pure."""
    due = (config.publish_every_steps, config.checkpoint_every_steps)
    return min((every - step % every for every in due if every), default=sys.maxsize)
