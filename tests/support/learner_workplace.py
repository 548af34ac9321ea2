"""A run's folder with all that a learner or its intake alone needs, in memory; and how tests move a learner on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learner_doubles import DictStore, ListTracker
from memory_broker import MemoryBus, MemoryLedger
from replay_games import frame, play_game

from azq import games
from azq.bus.base import Bus
from azq.config import LearnerConfig, NetworkConfig, RunConfig, RunSections, SearchConfig, SelfPlayConfig
from azq.learner.data.intake import BATCH, Intake
from azq.learner.learner import Learner
from azq.learner.opening import LearnerSetup
from azq.ledger import Ledger
from azq.replay.segments import SegmentLog
from azq.replay.window import Purges, Window, rebuild
from azq.store.objects import ObjectPrefix
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, LearnerStatus, RunRecord, SampleEvent, WeightEvent

RUN = "ttt"


class Workplace:
    """A run's folder, bus, ledger and store, and the learners that come and go in it."""

    def __init__(self, folder: Path, game: Any = None) -> None:
        self.folder = folder
        self.bus = MemoryBus()
        self.now_ms = 1  # by the ledger's clock
        self.ledger = MemoryLedger(self.bus, clock_ms=lambda: self.now_ms)
        self.ledger.create_run(RunRecord(RUN, b"{}", {}, "", 1))
        self.bus.client.hset(keys.ledger(RUN), "opened", 10**9)
        self.store = DictStore()
        self.tracker = ListTracker()
        self.game = game or games.load("tic_tac_toe")

    def learner(
        self,
        *,
        bus: Bus | None = None,
        ledger: Ledger | None = None,
        seed: int = 1,
        network: NetworkConfig | None = None,
        prefix: ObjectPrefix | None = None,
        folder: Path | None = None,
        most_waiting: int = 20_000,
        **options: Any,
    ) -> Learner:
        defaults: dict[str, Any] = {
            "device": "cpu",
            "precision": "float32",
            "batch_size": 16,
            "min_window": 40,
            "max_window": 2000,
            "samples_per_insert": 2.0,
            "limiter_slack": 100,
            "warmup_steps": 2,
            "publish_every_s": 3600.0,
            "checkpoint_every_s": 3600.0,
        }
        sections = RunSections(
            run=RunConfig(game=self.game.name, seed=seed),
            search=SearchConfig(reuse_subtree=False),
            selfplay=SelfPlayConfig(max_waiting_games=most_waiting),
            network=network or NetworkConfig(blocks=1, channels=8),
            learner=LearnerConfig(**{**defaults, **options}),
        )
        return LearnerSetup(
            RUN,
            folder or self.folder,
            sections,
            self.game,
            bus=bus or self.bus,
            ledger=ledger or self.ledger,
            store=self.store,
            tracker=self.tracker,
            consumer="learner@test:1",
            prefix=prefix,
            most_bytes=4096,
        ).open()

    def finish_games(self, first: int, last: int, **options: Any) -> None:
        for uid in range(first, last + 1):
            self.bus.publish(keys.samples(RUN), frame(self.game, uid, **options))

    def weights(self) -> list[WeightEvent]:
        return [decode(entry.frame, WeightEvent) for entry in self.bus.after(keys.weights(RUN), "0")]

    def status(self) -> LearnerStatus:
        status = self.bus.get(keys.learner_status(RUN))
        assert status is not None
        return decode(status, LearnerStatus)


class IntakeDesk:
    """A run with its ledger, a lease that finishes games, and the intake of its learner, without the learner."""

    def __init__(self, folder: Path, game: str = "tic_tac_toe") -> None:
        self.folder, self.game = folder, games.load(game)
        self.lose_control_plane()

    def lose_control_plane(self) -> None:
        self.bus = MemoryBus()
        self.ledger = MemoryLedger(self.bus)
        self.ledger.create_run(RunRecord("r", b"{}", {}, "", 1))
        lease = self.ledger.claim(self.ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")).job.job_id, 1, "w", 1000)
        assert lease is not None
        self.lease = lease

    def intake(self, purges: Purges | None = None, **options: Any) -> Intake:
        self.log = SegmentLog(self.folder / "segments", self.game.name, roll_bytes=1500)
        window = Window(self.game, 1000)
        rebuild(window, self.log, self.game, purges=purges)
        parts: dict[str, Any] = {"bus": self.bus, "ledger": self.ledger, "segments": self.log, "window": window, "consumer": "l"}
        return Intake("r", self.game, purges=purges, **parts, **options)

    def finish(self, count: int, leave: int = 0, change: Callable[[SampleEvent], SampleEvent] = lambda event: event) -> None:
        records = self.ledger.adopt(self.lease, count + leave)
        self.ledger.replace_games(self.lease, [change(play_game(self.game, record.uid)) for record in records[leave:]], 0)

    def publish(self, *events: SampleEvent) -> None:
        for event in events:
            self.bus.publish(keys.samples("r"), encode(event))


def stopped() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def turn(learner: Learner) -> None:
    """Takes in what is there and then trains a round, in this thread, so that both are where tests expect them."""
    while learner.taking.turn() >= BATCH:
        pass
    learner.turn(threading.Event())


def turns(learner: Learner, count: int) -> None:
    for _ in range(count):
        turn(learner)


def run_dry(learner: Learner) -> None:
    """Turns until the stream is empty and the limiter has stopped training."""
    for _ in range(200):
        turn(learner)
        if learner.status().waiting:
            turn(learner)
            if learner.status().waiting:
                return
    raise AssertionError("the learner never ran dry")
