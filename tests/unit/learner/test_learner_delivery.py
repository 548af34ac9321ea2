"""From the sample stream into the learner: counted, trained on, and waiting where a disk is full."""

from __future__ import annotations

import errno
import os
import time

import structlog
from learner_workplace import RUN, run_dry, turns
from replay_games import play_game
from waiting import PATIENCE_S

from azq import games
from azq.learner.data.intake import BATCH
from azq.replay import segments
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import DeadLetter, WeightEvent


def test_games_are_stored_acknowledged_counted_and_trained_on(place):
    learner = place.learner()
    place.finish_games(1, 30)
    run_dry(learner)
    status = learner.status()
    assert place.bus.length(keys.samples(RUN)) == 0
    assert status.games_inserted == place.ledger.counts(RUN).inserted == 30
    assert status.step == status.samples_consumed // 16 > 0
    assert status.samples_consumed <= 2.0 * status.samples_inserted < status.samples_consumed + 16


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
    assert set(place.ledger.abandoned(RUN)) == {3}


def test_a_full_disk_is_waited_for_and_nothing_is_half_acknowledged(place, monkeypatch):
    learner = place.learner()
    turns(learner, 1)
    place.finish_games(1, 5)

    def refuse(file: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, structlog.testing.capture_logs() as lines:
        patch.setattr(segments, "write_all", refuse)
        turns(learner, 1)
    assert ["No space left" in line["reason"] for line in lines if line["event"] == "disk_refuses"] == [True]
    assert place.bus.length(keys.samples(RUN)) == 5
    assert place.ledger.counts(RUN).inserted == 0
    deadline = time.monotonic() + PATIENCE_S
    while place.ledger.counts(RUN).inserted < 5 and time.monotonic() < deadline:  # it pauses between two tries
        turns(learner, 1)
    assert place.ledger.counts(RUN).inserted == 5
    assert place.ledger.counts(RUN).duplicates_dropped == 0


def test_more_games_than_one_read_holds_are_taken_in_by_one_turn(place):
    learner = place.learner()
    place.finish_games(1, 2 * BATCH + 1)
    turns(learner, 1)
    assert place.ledger.counts(RUN).inserted == 2 * BATCH + 1
