"""The learner's loop over a bus in memory: each game once, limiter, publishing, resuming, outages."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
import structlog
import torch
from learner_doubles import DictStore, ListTracker, OneRunLedger
from replay_games import frame, play_game

from azq import games
from azq.bus.memory import MemoryBus
from azq.config import LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.errors import BrokerUnavailable, StateConflict
from azq.learner import checkpoint
from azq.learner.learner import Learner
from azq.learner.opening import open_learner
from azq.ledger.types import RunState
from azq.nets import from_bytes
from azq.replay import disk
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import DeadLetter, LearnerStatus, MatchResult, MatchSpec, RunRecord, WeightEvent

RUN = "ttt"


class Workplace:
    """A run's folder, bus, ledger and store, and the learners that come and go in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bus = MemoryBus()
        self.ledger = OneRunLedger(RUN, self.bus)
        self.store = DictStore()
        self.tracker = ListTracker()
        self.game = games.load("tic_tac_toe")

    def learner(self, *, bus=None, ledger=None, seed: int = 1, network: NetworkConfig | None = None, **options) -> Learner:
        defaults = {
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
            run=RunConfig(game="tic_tac_toe", seed=seed),
            network=network or NetworkConfig(blocks=1, channels=8),
            learner=LearnerConfig(**{**defaults, **options}),
        )
        return open_learner(
            RUN,
            self.folder,
            sections,
            self.game,
            bus=bus or self.bus,
            ledger=ledger or self.ledger,
            store=self.store,
            tracker=self.tracker,
            consumer="learner@test:1",
        )

    def finish_games(self, first: int, last: int, **options) -> None:
        for uid in range(first, last + 1):
            self.bus.publish(keys.samples(RUN), frame(self.game, uid, **options))

    def weights(self) -> list[WeightEvent]:
        return [decode(entry.frame, WeightEvent) for entry in self.bus.after(keys.weights(RUN), "0")]

    def status(self) -> LearnerStatus:
        return decode(self.bus.get(keys.learner_status(RUN)), LearnerStatus)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr("azq.learner.learner.IDLE_BLOCK_MS", 2)


@pytest.fixture
def place(tmp_path) -> Workplace:
    return Workplace(tmp_path)


def stopped() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def turns(learner: Learner, count: int) -> None:
    go = threading.Event()
    for _ in range(count):
        learner.turn(go)


def run_dry(learner: Learner) -> None:
    """Turns until the stream is empty and the limiter has stopped training."""
    go = threading.Event()
    for _ in range(200):
        learner.turn(go)
        if learner.status().waiting:
            learner.turn(go)
            if learner.status().waiting:
                return
    raise AssertionError("the learner never ran dry")


def test_first_weights_go_out_before_any_data(place):
    learner = place.learner()
    turns(learner, 1)
    (event,) = place.weights()
    assert (event.version, event.step, event.run) == (1, 0, RUN)
    _, meta = from_bytes(place.store.blobs[event.sha256])
    assert (meta.game, meta.version, meta.network["channels"]) == ("tic_tac_toe", 1, 8)
    assert place.status().waiting


def test_games_are_stored_acknowledged_counted_and_trained_on(place):
    learner = place.learner()
    place.finish_games(1, 30)
    run_dry(learner)
    status = learner.status()
    assert place.bus.length(keys.samples(RUN)) == 0
    assert status.games_inserted == place.ledger.inserted == 30
    assert status.step == status.samples_consumed // 16 > 0
    assert status.samples_consumed <= 2.0 * status.samples_inserted < status.samples_consumed + 16


def test_no_training_before_the_window_has_its_minimum(place):
    learner = place.learner(min_window=10_000)
    place.finish_games(1, 10)
    turns(learner, 3)
    assert learner.status().step == 0
    assert learner.status().waiting


def test_duplicates_are_dropped_and_counted(place):
    learner = place.learner()
    place.finish_games(1, 5)
    place.finish_games(4, 6)
    turns(learner, 2)
    place.finish_games(1, 1)
    turns(learner, 2)
    assert learner.status().games_inserted == 6
    assert place.ledger.duplicates_dropped == 3
    assert place.bus.length(keys.samples(RUN)) == 0


class Failing:
    """A bus or ledger whose named method fails once, before or after it took effect."""

    def __init__(self, inner, method: str, error: BaseException, *, after: bool = False) -> None:
        self._inner, self._method, self._error, self._after = inner, method, error, after
        self.failures = 1

    def __getattr__(self, name: str):
        attribute = getattr(self._inner, name)
        if name != self._method or not self.failures:
            return attribute

        def fail(*args, **options):
            self.failures -= 1
            if self._after:
                attribute(*args, **options)
            raise self._error

        return fail


class Killed(BaseException):
    """Stands for SIGKILL."""


def test_killed_between_append_and_ack_the_next_learner_drops_and_counts(place):
    turns(place.learner(), 1)
    place.finish_games(1, 8)
    first = place.learner()
    first._parts.intake.agree_with_ledger()
    first._parts.intake._ledger = Failing(place.ledger, "record_inserted", Killed())
    with pytest.raises(Killed):
        first._parts.intake.read(block_ms=0)
    assert place.bus.length(keys.samples(RUN)) == 8
    second = place.learner()
    place.finish_games(9, 9)
    turns(second, 2)
    assert place.bus.length(keys.samples(RUN)) == 0
    assert second.status().games_inserted == place.ledger.inserted == 9
    assert place.ledger.duplicates_dropped == 8


@pytest.mark.parametrize("method", ["read", "claim", "put", "publish", "record_inserted", "counts", "run"])
@pytest.mark.parametrize("after", [False, True])
def test_an_outage_loses_nothing(place, method, after):
    gone = BrokerUnavailable("gone; start the broker")
    learner = place.learner(bus=Failing(place.bus, method, gone, after=after), ledger=Failing(place.ledger, method, gone, after=after))
    place.finish_games(1, 8)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (place.ledger.inserted < 8 or place.bus.length(keys.samples(RUN))):
        turns(learner, 1)
    assert learner.status().games_inserted == 8
    assert place.bus.length(keys.samples(RUN)) == 0


def test_unreadable_and_illegal_samples_become_dead_letters_and_stop_nobody(place):
    learner = place.learner()
    place.finish_games(1, 2)
    place.bus.publish(keys.samples(RUN), b"noise")
    place.bus.publish(keys.samples(RUN), encode(WeightEvent(RUN, 1, "", "", 0, 0)))
    place.bus.publish(keys.samples(RUN), encode(play_game(games.load("connect_four"), 3)))
    place.finish_games(4, 4)
    turns(learner, 2)
    assert learner.status().games_inserted == 3
    assert place.bus.length(keys.samples(RUN)) == 0
    letters = [decode(entry.frame, DeadLetter) for entry in place.bus.after(keys.DEAD, "0")]
    assert [letter.frame == b"noise" for letter in letters] == [True, False, False]
    assert all(letter.stream == keys.samples(RUN) and letter.reason for letter in letters)
    assert set(place.ledger.refused) == {3}


def test_selfplay_is_stalled_when_it_runs_ahead_and_released_when_it_is_caught_up(place):
    learner = place.learner(limiter_slack=10)
    place.finish_games(1, 40)
    learner._take_in(block_ms=0)
    learner._say()
    assert place.status().stall_selfplay
    assert place.bus.get(keys.stall(RUN)) is not None
    run_dry(learner)
    learner._say()
    assert not place.status().stall_selfplay
    assert place.bus.get(keys.stall(RUN)) is None


def test_resumed_learner_has_the_counters_and_weights_of_an_uninterrupted_one(tmp_path):
    whole, halves = Workplace(tmp_path / "whole"), Workplace(tmp_path / "halves")
    one = whole.learner()
    for first, last in ((1, 20), (21, 40)):
        whole.finish_games(first, last)
        run_dry(one)
    early = halves.learner()
    halves.finish_games(1, 20)
    run_dry(early)
    early.run(stopped())
    late = halves.learner()
    halves.finish_games(21, 40)
    run_dry(late)
    ours, theirs = one.status(), late.status()
    for field in ("step", "samples_inserted", "samples_consumed", "games_inserted", "duplicates_dropped", "window"):
        assert getattr(ours, field) == getattr(theirs, field), field
    tensors, others = one._parts.trainer.tensors(), late._parts.trainer.tensors()
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    assert [event.version for event in halves.weights()] == [1, 2]
    turns(late, 1)
    late._publish()
    assert [event.version for event in halves.weights()] == [1, 2, 3]


def test_stopping_drains_the_stream_publishes_and_writes_a_checkpoint(place):
    learner = place.learner()
    place.finish_games(1, 30)
    run_dry(learner)
    place.finish_games(31, 1000)
    learner.run(stopped())
    assert place.bus.length(keys.samples(RUN)) == 0
    assert place.ledger.inserted == 1000
    assert [event.version for event in place.weights()] == [1, 2]
    state = checkpoint.load_newest(place.folder / "checkpoints").state
    assert (state.step, state.weight_version) == (learner.status().step, 2)
    assert place.status().games_inserted == 1000


def test_a_stop_within_the_training_phase_is_noticed(place):
    learner = place.learner(samples_per_insert=10_000.0)
    place.finish_games(1, 30)
    stop = threading.Event()
    seen: list[LearnerStatus] = []

    def on_turn(status: LearnerStatus) -> None:
        seen.append(status)
        if status.step > 20:
            stop.set()

    learner.run(stop, on_turn)
    assert seen[-1].step < 5000


def test_without_a_checkpoint_training_goes_on_from_the_published_weights(place, capsys):
    first = place.learner()
    place.finish_games(1, 30)
    run_dry(first)
    first.run(stopped())
    for path in checkpoint.stored(place.folder / "checkpoints"):
        path.unlink()
    second = place.learner(seed=2)
    assert second.status().step == first.status().step
    ours, theirs = first._parts.trainer.averaged.state_dict(), second._parts.trainer.averaged.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert "no_checkpoint" in capsys.readouterr().out
    assert second.status().games_inserted == 30


def test_without_checkpoint_and_blobs_it_starts_over_under_a_higher_version(place):
    first = place.learner()
    place.finish_games(1, 30)
    run_dry(first)
    first.run(stopped())
    for path in checkpoint.stored(place.folder / "checkpoints"):
        path.unlink()
    place.store.blobs.clear()
    second = place.learner()
    turns(second, 1)
    assert second.status().weight_version == 2
    run_dry(second)
    second._publish()
    assert [event.version for event in place.weights()] == [1, 2, 3]


def test_an_unreadable_weight_event_does_not_reset_the_version(place):
    turns(place.learner(), 1)
    place.bus.publish(keys.weights(RUN), b"noise")
    assert place.learner()._parts.publisher.next_version() == 2


def test_checkpoints_of_another_game_are_refused(place):
    learner = place.learner()
    learner._save()
    path = checkpoint.stored(place.folder / "checkpoints")[0]
    found = checkpoint.load(path)
    checkpoint.save(path.parent, checkpoint.Checkpoint(msgspec.structs.replace(found.state, game="go"), found.tensors))
    with pytest.raises(StateConflict, match="'go'"):
        place.learner()


def test_a_paused_run_is_published_and_not_trained_yet_its_games_are_kept(place):
    learner = place.learner()
    place.finish_games(1, 30)
    run_dry(learner)
    place.ledger.state = RunState.PAUSED
    learner._say()
    step = learner.status().step
    assert [event.version for event in place.weights()] == [1, 2]
    place.finish_games(31, 90)
    turns(learner, 3)
    assert learner.status().step == step
    assert learner.status().games_inserted == 90
    place.ledger.state = RunState.RUNNING
    learner._say()
    turns(learner, 2)
    assert learner.status().step > step


def test_progress_follows_the_run_and_drops_the_learning_rate(place):
    learner = place.learner()
    place.ledger.record = RunRecord(RUN, b"{}", {"minutes": 10.0}, "", 0)
    place.ledger.active_ms = 7 * 60_000
    learner._say()
    place.finish_games(1, 30)
    run_dry(learner)
    assert learner.status().progress == pytest.approx(0.7)
    assert learner.status().learning_rate == pytest.approx(2e-3 * 0.2)


def test_curves_carry_the_arenas_results_once(place):
    learner = place.learner()
    spec = MatchSpec("weights:1", "uct:100", 10, 16, 0, 0)
    place.bus.publish(keys.results(RUN), encode(MatchResult(spec, "weights:1", "uct:100", 8, 0, 2, 1)))
    place.bus.publish(keys.results(RUN), b"noise")
    turns(learner, 1)
    place.finish_games(1, 30)
    run_dry(learner)
    learner._publish()
    (first, second) = (values for _, values in place.tracker.seen)
    assert first["arena/score_uct_100"] == 0.8
    assert "arena/elo" not in second
    assert {"loss/policy", "loss/value", "train/lr", "replay/samples_per_insert", "selfplay/policy_lag"} <= second.keys()
    assert second["loss/policy"] > 0


def test_a_full_disk_is_waited_for_and_nothing_is_half_acknowledged(place, monkeypatch):
    learner = place.learner()
    turns(learner, 1)
    place.finish_games(1, 5)

    def refuse(file: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, structlog.testing.capture_logs() as lines:
        patch.setattr(disk, "write_all", refuse)
        turns(learner, 1)
    assert ["No space left" in line["reason"] for line in lines if line["event"] == "disk_refuses"] == [True]
    assert place.bus.length(keys.samples(RUN)) == 5
    assert place.ledger.inserted == 0
    deadline = time.monotonic() + 30
    while place.ledger.inserted < 5 and time.monotonic() < deadline:  # it pauses between two tries
        turns(learner, 1)
    assert place.ledger.inserted == 5
    assert place.ledger.duplicates_dropped == 0
