"""Intake beside training: neither waits for the other, what ends one ends both, and every game is there once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from learner_workplace import RUN, stopped
from replay_games import frame
from waiting import PATIENCE_S, until

from azq.errors import StateConflict
from azq.learner import checkpoint
from azq.learner.data import intake_loop
from azq.learner.data.intake_loop import HANGS_AFTER_S, IntakeLoop
from azq.replay.readers import SegmentReader
from azq.waiting import LONGEST_WAIT_S, Waits
from azq.wire import keys


class Blocking:
    """Something whose named method waits until it is let go."""

    def __init__(self, inner: Any, method: str) -> None:
        self._inner, self._method = inner, method
        self.begun, self.go = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name != self._method:
            return attribute

        def wait(*args: Any, **options: Any) -> Any:
            self.begun.set()
            assert self.go.wait(PATIENCE_S)
            return attribute(*args, **options)

        return wait


@pytest.fixture
def running():
    """Runs a learner in a thread; returns what ends it and gives the thread's error, if any."""
    threads = []

    def run(learner, on_turn=lambda status: None):
        stop, errors = threading.Event(), []

        def body() -> None:
            try:
                learner.run(stop, on_turn)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=body)
        threads.append((stop, thread))
        thread.start()

        def end() -> list[BaseException]:
            stop.set()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            return errors

        return end

    yield run
    for stop, thread in threads:
        stop.set()
        thread.join(PATIENCE_S)


def test_games_are_taken_in_while_a_round_trains(place, running):
    learner = place.learner()
    place.finish_games(1, 30)
    learner.ranks = Blocking(learner.ranks, "train")
    end = running(learner)
    assert learner.ranks.begun.wait(PATIENCE_S)
    place.finish_games(31, 500)
    until(lambda: place.ledger.counts(RUN).inserted == 500)
    assert learner.status().step == 0
    learner.ranks.go.set()
    assert end() == []
    assert learner.status().games_inserted == 500


def test_rounds_train_while_a_read_waits(place, running):
    bus = Blocking(place.bus, "read")
    learner = place.learner(bus=bus, samples_per_insert=10_000.0)
    bus.go.set()
    place.finish_games(1, 30)
    end = running(learner)
    until(lambda: learner.status().step > 0)
    bus.begun.clear()
    bus.go.clear()
    assert bus.begun.wait(PATIENCE_S)
    step = learner.status().step
    until(lambda: learner.status().step > step + 5)
    bus.go.set()
    assert end() == []


def test_what_comes_from_many_while_it_trains_is_stored_once_and_known_after_a_restart(place, running):
    learner = place.learner(samples_per_insert=4.0)
    end = running(learner)
    senders = [
        threading.Thread(target=lambda part=part: [place.bus.publish(keys.samples(RUN), frame(place.game, uid)) for uid in part])
        for part in (range(1, 201), range(101, 301), range(151, 351))
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    until(lambda: place.ledger.counts(RUN).inserted == 350)
    assert end() == []
    assert place.bus.length(keys.samples(RUN)) == 0
    assert place.ledger.counts(RUN).duplicates_dropped == 250
    stored = [event.record.uid for _, event in SegmentReader(place.folder / "segments").newest(1000)]
    assert sorted(stored) == list(range(1, 351))
    state = checkpoint.load_newest(place.folder / "checkpoints").state
    assert (state.step, state.duplicates_dropped) == (learner.status().step, 250)
    assert state.samples_consumed <= 4.0 * learner.status().samples_inserted
    again = place.learner().status()
    assert (again.games_inserted, again.step, again.samples_consumed) == (350, state.step, state.samples_consumed)


def test_what_ends_intake_ends_the_learner_and_nothing_was_written(place):
    learner = place.learner()
    place.ledger.record_inserted(RUN, 7, 0)  # games that the folder does not have
    with pytest.raises(StateConflict, match="7 were stored"):
        learner.run(threading.Event())
    assert place.weights() == []
    assert checkpoint.stored(place.folder / "checkpoints") == []


def test_what_ends_training_ends_intake(place, monkeypatch):
    learner = place.learner()
    monkeypatch.setattr(learner, "turn", lambda stop: (_ for _ in ()).throw(KeyError("training")))
    with pytest.raises(KeyError, match="training"):
        learner.run(threading.Event())
    assert "intake" not in {thread.name for thread in threading.enumerate()}


def test_a_loop_that_hangs_gives_no_sign_of_life(place):
    now = [0.0]
    loop = IntakeLoop(place.learner().intake, clock=lambda: now[0])
    loop.turn()
    now[0] = HANGS_AFTER_S - 0.1
    assert loop.lives()
    now[0] = HANGS_AFTER_S
    assert not loop.lives()
    loop.turn()
    assert loop.lives()


def test_a_loop_that_waits_for_its_broker_does_not_hang(place, monkeypatch):
    now, begun, go = [0.0], threading.Event(), threading.Event()
    waits = Waits(lambda: now[0])
    monkeypatch.setattr(intake_loop, "WAITS", waits)
    loop = IntakeLoop(place.learner().intake, clock=lambda: now[0])

    def read() -> int:
        with waits.here():
            begun.set()
            assert go.wait(PATIENCE_S)
        return 0

    monkeypatch.setattr(loop.intake, "read", read)
    with loop.beside():
        assert begun.wait(PATIENCE_S)
        now[0] += HANGS_AFTER_S
        assert loop.lives()
        now[0] += LONGEST_WAIT_S
        assert not loop.lives()
        go.set()


def test_both_threads_tell_where_their_time_goes(place, running):
    learner = place.learner()
    place.finish_games(1, 300)
    end = running(learner)
    until(lambda: learner.taking.cores)  # of the last ten seconds, and a first step may take longer
    until(lambda: learner.status().step)
    assert end() == []
    shares = learner.shares()
    assert {"phase_cpu_intake", "phase_wall_backward", "phase_cpu_backward"} <= shares.keys()
    assert "phase_wall_intake" not in shares  # it takes none of the time of the loop, whose shares add up to one


def test_games_that_are_on_disk_and_not_in_the_window_yet_are_not_trained_on(place, monkeypatch):
    learner = place.learner()
    place.finish_games(1, 300)
    monkeypatch.setattr(learner.intake.window, "add", lambda samples: None)  # the other thread was interrupted before it
    learner.taking.turn()
    assert not learner.status().waiting
    learner.turn(threading.Event())
    assert learner.trainer.step == 0


def test_a_learner_that_is_stopped_at_once_drains_all_the_same(place):
    learner = place.learner()
    place.finish_games(1, 300)
    learner.run(stopped())
    assert place.ledger.counts(RUN).inserted == 300
