"""Intake against the ledger's rules: forged and damaged samples, logs that lack games or know more than the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from learner_workplace import IntakeDesk
from replay_games import play_game

from azq import games
from azq.errors import BrokerUnavailable, StateConflict
from azq.ledger.types import WRITTEN_OFF
from azq.replay.window import Purges
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.machines import PurgedGames, PurgeOrders
from azq.wire.messages import DeadLetter, RunEvent, SampleEvent

GAME = games.load("tic_tac_toe")


class Desk(IntakeDesk):
    """With what tests ask of it."""

    def letters(self) -> list[str]:
        return [decode(entry.frame, DeadLetter).reason for entry in self.bus.after(keys.DEAD, "0")]

    def on_disk(self) -> set[int]:
        return {uid for uid in range(1, 200) if uid in self.log}

    def check(self) -> None:
        counts = self.ledger.counts("r")
        assert counts.balanced
        assert self.on_disk() == set(range(1, counts.opened + 1)) - self.ledger.open_uids("r") - set(self.ledger.abandoned("r"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_game_that_was_never_opened_is_a_dead_letter(desk):
    intake = desk.intake()
    desk.finish(3)
    desk.bus.publish(keys.samples("r"), encode(play_game(GAME, 77)))
    intake.read()
    assert desk.on_disk() == {1, 2, 3}
    assert [reason.startswith("game 77 was never opened") for reason in desk.letters()] == [True]
    desk.check()
    desk.finish(2)  # the ledger is asked again when numbers grow
    intake.read()
    assert desk.on_disk() == {1, 2, 3, 4, 5}
    desk.check()


def test_the_first_game_is_forged_too_where_none_was_opened(desk):
    desk.publish(numbered(1))
    desk.intake().read()
    assert desk.on_disk() == set()
    assert [reason.startswith("game 1 was never opened") for reason in desk.letters()] == [True]


@pytest.mark.parametrize("uid", [1, 2, 3])
def test_a_damaged_sample_abandons_its_game_by_name(desk, uid):
    intake = desk.intake()
    for record in desk.ledger.adopt(desk.lease, 3):
        frame = bytearray(encode(play_game(GAME, record.uid)))
        if record.uid == uid:
            frame[len(frame) // 2] ^= 1
        desk.ledger.replace_games(desk.lease, [play_game(GAME, record.uid)], 0)
        (entry,) = desk.bus.newest(keys.samples("r"))
        desk.bus.ack(keys.samples("r"), keys.LEARNER_GROUP, [entry.id])
        desk.bus.publish(keys.samples("r"), bytes(frame))
    intake.read()
    assert desk.on_disk() == {1, 2, 3} - {uid}
    counts = desk.ledger.counts("r")
    assert (counts.finished, counts.abandoned, counts.inserted) == (2, 1, 2)
    assert "checksum" in desk.ledger.abandoned("r")[uid]
    desk.check()


def test_a_damaged_copy_of_a_stored_game_changes_nothing(desk):
    intake = desk.intake()
    desk.finish(2)
    frame = bytearray(encode(play_game(GAME, 1)))
    frame[len(frame) // 2] ^= 1
    desk.bus.publish(keys.samples("r"), bytes(frame))
    intake.read()
    assert len(desk.letters()) == 1
    desk.check()


def test_a_lost_control_plane_goes_on_from_the_folder_and_drops_no_new_game(desk):
    intake = desk.intake()
    desk.finish(20, leave=4)
    intake.read()
    desk.finish(5, leave=6)  # finished and not stored when all is lost
    desk.log.close()
    desk.lose_control_plane()
    intake = desk.intake()
    intake.agree_with_ledger()
    counts = desk.ledger.counts("r")
    assert (counts.opened, counts.finished, counts.inserted, counts.abandoned, counts.written_off) == (24, 20, 20, 4, 4)
    assert set(desk.ledger.abandoned("r").items()) == {(uid, WRITTEN_OFF) for uid in (1, 2, 3, 4)}
    said = [decode(entry.frame, RunEvent) for entry in desk.bus.after(keys.events("r"), "0")]
    assert [event.about["written_off"] for event in said if event.kind == "run.restored"] == ["4"]
    desk.check()
    desk.finish(10)
    intake.read()
    assert desk.ledger.counts("r").duplicates_dropped == 0
    assert desk.on_disk() == set(range(5, 35))
    desk.check()


def test_games_that_are_open_or_on_their_way_are_not_written_off(desk):
    intake = desk.intake()
    desk.finish(6)
    intake.read()
    desk.log.close()
    desk.lose_control_plane()
    desk.finish(2, leave=1)  # made before anybody looked at the folder
    intake = desk.intake()
    intake.agree_with_ledger()
    intake.read()
    desk.ledger.replace_games(desk.lease, [play_game(GAME, 1)], 0)
    intake.read()
    assert desk.on_disk() == {1, 2, 3, 4, 5, 6}
    assert desk.ledger.counts("r").abandoned == 0
    assert desk.ledger.counts("r").duplicates_dropped == 3
    assert desk.ledger.counts("r").balanced
    desk.finish(1)
    intake.read()
    assert desk.on_disk() == {1, 2, 3, 4, 5, 6, 7}


def numbered(uid: int, **fields: Any) -> SampleEvent:
    """Game 1 under any number, by the rules unless `fields` say otherwise."""
    event = play_game(GAME, 1)
    return msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, uid=uid), **fields)


LIES = {"returns": (0.5, 0.5)}


def test_a_read_takes_in_so_many_entries_and_says_how_many(desk):
    intake = desk.intake()
    desk.finish(258)
    assert [intake.read() for _ in range(3)] == [256, 2, 0]
    assert len(desk.log.uids) == desk.ledger.counts("r").inserted == 258
    assert (intake.duplicates, intake.dead_letters) == (0, 0)


def test_a_read_waits_for_nothing(desk):
    intake = desk.intake()
    waits, read = [], desk.bus.read
    desk.bus.read = lambda *which, block_ms, **more: waits.append(block_ms) or read(*which, block_ms=block_ms, **more)
    assert intake.read() == 0
    assert waits == [0]


def test_what_was_read_and_not_acknowledged_is_taken_in_and_counted(desk):
    desk.finish(258)
    desk.bus.read([keys.samples("r")], keys.LEARNER_GROUP, "before", count=258, block_ms=0)
    intake = desk.intake()
    assert [intake.claim_leftovers(), intake.claim_leftovers(), intake.read()] == [258, 0, 0]
    assert len(desk.log.uids) == desk.ledger.counts("r").inserted == 258


def test_a_game_counts_once_among_copies_within_a_read_and_later(desk):
    intake = desk.intake()
    desk.finish(2)
    desk.publish(numbered(1), numbered(1))
    with structlog.testing.capture_logs() as lines:
        intake.read()
    assert [line["count"] for line in lines if line["event"] == "duplicates_dropped"] == [2]
    assert (intake.duplicates, desk.ledger.counts("r").duplicates_dropped) == (2, 2)
    desk.publish(numbered(2))
    intake.read()
    desk.finish(1)
    with structlog.testing.capture_logs() as lines:
        intake.read()
    assert lines == []
    assert (intake.duplicates, desk.ledger.counts("r").duplicates_dropped, desk.on_disk()) == (3, 3, {1, 2, 3})


@pytest.mark.parametrize("copies", [[LIES, {}, {}], [{}, LIES, {}], [{}, {}, LIES], [LIES, LIES, {}]])
def test_the_first_good_copy_counts_whatever_was_read_before_it(desk, copies):
    intake = desk.intake()
    desk.ledger.replace_games(desk.lease, [numbered(desk.ledger.adopt(desk.lease, 1)[0].uid, **copies[0])], 0)
    desk.publish(*(numbered(1, **fields) for fields in copies[1:]))
    intake.read()
    assert desk.on_disk() == {1}
    assert desk.ledger.counts("r").abandoned == 0
    assert intake.duplicates + intake.dead_letters == 2
    desk.check()


def test_a_game_that_lies_is_abandoned_with_the_reason(desk):
    intake = desk.intake()
    records = desk.ledger.adopt(desk.lease, 2)
    desk.ledger.replace_games(desk.lease, [numbered(records[0].uid, **LIES), numbered(records[1].uid)], 0)
    intake.read()
    assert list(desk.ledger.abandoned("r")) == [1]
    assert [reason for reason in desk.letters() if "claims returns" in reason] == [desk.ledger.abandoned("r")[1]]
    assert (intake.dead_letters, desk.bus.length(keys.samples("r"))) == (1, 0)
    desk.check()


@pytest.mark.parametrize("uid", [0, -3])
@pytest.mark.parametrize("torn", [False, True])
def test_a_number_that_no_game_has_is_a_dead_letter_and_nothing_to_the_ledger(desk, uid, torn):
    intake = desk.intake()
    refused = []
    record = desk.ledger.record_inserted
    desk.ledger.record_inserted = lambda *counts, **more: (refused.append(more.get("refused")), record(*counts, **more))
    frame = bytearray(encode(numbered(uid)))
    frame[len(frame) // 2] ^= torn
    desk.bus.publish(keys.samples("r"), bytes(frame))
    intake.read()
    assert (len(desk.letters()), intake.dead_letters, refused) == (1, 1, [{}])


def test_the_ledger_is_asked_what_it_opened_only_when_numbers_grow(desk):
    intake = desk.intake()
    asked = []
    counts = desk.ledger.counts
    desk.ledger.counts = lambda run: asked.append(run) or counts(run)
    desk.publish(numbered(0))  # no game's number
    intake.read()
    desk.bus.publish(keys.samples("r"), b"noise")
    intake.read()
    assert asked == []
    for finished, times in ((3, 1), (0, 1), (1, 2)):
        desk.finish(finished)
        desk.publish(numbered(3))
        intake.read()
        assert len(asked) == times
    desk.publish(numbered(5), numbered(4))
    intake.read()
    assert desk.on_disk() == {1, 2, 3, 4}


def test_the_mean_version_of_weights_is_that_of_the_last_games_taken_in(desk):
    intake = desk.intake()
    assert intake.mean_weight_version == 0.0
    for record in desk.ledger.adopt(desk.lease, 1):
        desk.ledger.replace_games(desk.lease, [play_game(GAME, record.uid, weight_version=6)], 0)
    intake.read()
    desk.publish(numbered(1))
    intake.read()
    assert intake.mean_weight_version == 6.0


def test_whose_games_the_owner_orders_out_leaves_the_window_once_and_it_is_said(desk):
    intake = desk.intake(Purges(desk.folder))
    desk.finish(4)
    intake.read()
    before = len(intake.window)
    worker = play_game(GAME, 1).worker
    desk.bus.put(keys.purges("r"), encode(PurgeOrders({worker: 2**40, "nobody": 5})))
    intake.agree_with_ledger()
    told = [decode(desk.bus.get(keys.purged("r", name)), PurgedGames) for name in (worker, "nobody")]
    assert (before > 0, len(intake.window)) == (True, 0)
    assert told == [PurgedGames(2**40, 4, before, before), PurgedGames(5, 0, 0, 0)]
    desk.bus.delete(keys.purged("r", worker))
    intake.agree_with_ledger()
    assert desk.bus.get(keys.purged("r", worker)) is None, "an order that was followed"


def test_samples_reach_the_window(desk):
    intake = desk.intake()
    desk.finish(40)
    intake.read()
    assert intake.window.total == desk.log.samples > 0


def test_a_broker_without_memory_for_dead_letters_stops_nobody(desk):
    intake = desk.intake()
    desk.finish(1)
    desk.bus.publish(keys.samples("r"), b"noise")

    def refuse(entry, reason):
        raise BrokerUnavailable("out of memory")

    desk.bus.dead_letter = refuse
    intake.read()
    assert (intake.dead_letters, desk.on_disk()) == (1, {1})


def test_counts_agree_without_restoring_where_the_ledger_knows_the_newest_game(desk):
    intake = desk.intake()
    desk.finish(3)
    intake.read()
    desk.log.close()
    intake = desk.intake()
    desk.ledger.record_inserted("r", 2, 5)  # it missed the last acknowledgement, and knows of more duplicates
    intake.agree_with_ledger()
    counts = desk.ledger.counts("r")
    assert (counts.inserted, counts.duplicates_dropped, counts.written_off, intake.duplicates) == (3, 5, 0, 5)
    intake.duplicates = 9
    intake.agree_with_ledger()
    assert desk.ledger.counts("r").duplicates_dropped == 9


def test_a_folder_that_lacks_stored_games_is_refused_and_the_ledger_stays(desk, tmp_path):
    intake = desk.intake()
    desk.finish(6)
    intake.read()
    desk.log.close()
    desk.folder = tmp_path / "another"
    with pytest.raises(StateConflict, match=r"holds 0 games, and 6 were stored.*azq runs restore"):
        desk.intake().agree_with_ledger()
    assert desk.ledger.counts("r").inserted == 6
