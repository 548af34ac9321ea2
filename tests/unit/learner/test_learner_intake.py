"""Intake against the ledger's rules: forged and damaged samples, logs that lack games or know more than the ledger."""

from __future__ import annotations

import pytest
from replay_games import play_game

from azq import games
from azq.bus.memory import MemoryBus
from azq.errors import StateConflict
from azq.learner.intake import Intake
from azq.ledger import MemoryLedger
from azq.ledger.rules.learner import WRITTEN_OFF
from azq.replay.segments import SegmentLog
from azq.replay.window import Window
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import DeadLetter, RunEvent, RunRecord

GAME = games.load("tic_tac_toe")


class Desk:
    """A run with its ledger, a lease that finishes games, and the intake of its learner."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.lose_control_plane()

    def lose_control_plane(self) -> None:
        self.bus = MemoryBus()
        self.ledger = MemoryLedger(self.bus)
        self.ledger.create_run(RunRecord("r", b"{}", {}, "", 1))
        self.lease = self.ledger.claim(self.ledger.enqueue("r", "selfplay", "cpu").job.job_id, 1, "w", 1000)

    def intake(self) -> Intake:
        self.log = SegmentLog(self.folder / "segments", "tic_tac_toe")
        return Intake(
            "r",
            GAME,
            bus=self.bus,
            ledger=self.ledger,
            segments=self.log,
            window=Window(GAME, 1000),
            consumer="l",
            root_value_fraction=0.0,
        )

    def finish(self, count: int, leave: int = 0) -> None:
        records = self.ledger.adopt(self.lease, count + leave)
        self.ledger.finish_games(self.lease, [play_game(GAME, record.uid) for record in records[leave:]])

    def letters(self) -> list[str]:
        return [decode(entry.frame, DeadLetter).reason for entry in self.bus.after(keys.DEAD, "0")]

    def on_disk(self) -> set[int]:
        return {uid for uid in range(1, 200) if uid in self.log}

    def check(self) -> None:
        state = self.ledger.state("r")
        assert self.ledger.counts("r").balanced
        assert self.on_disk() == set(range(1, state.opened + 1)) - set(state.open) - set(state.abandoned)


@pytest.fixture
def desk(tmp_path) -> Desk:
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


def test_a_damaged_sample_abandons_its_game_by_name(desk):
    intake = desk.intake()
    for record in desk.ledger.adopt(desk.lease, 3):
        frame = bytearray(encode(play_game(GAME, record.uid)))
        if record.uid == 2:
            frame[len(frame) // 2] ^= 1
        desk.ledger.finish_games(desk.lease, [play_game(GAME, record.uid)])
        (entry,) = desk.bus.newest(keys.samples("r"))
        desk.bus.ack(keys.samples("r"), keys.LEARNER_GROUP, [entry.id])
        desk.bus.publish(keys.samples("r"), bytes(frame))
    intake.read()
    assert desk.on_disk() == {1, 3}
    counts = desk.ledger.counts("r")
    assert (counts.finished, counts.abandoned, counts.inserted) == (2, 1, 2)
    assert "checksum" in desk.ledger.state("r").abandoned[2]
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
    assert set(desk.ledger.state("r").abandoned.items()) == {(uid, WRITTEN_OFF) for uid in (1, 2, 3, 4)}
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
    desk.ledger.finish_games(desk.lease, [play_game(GAME, 1)])
    intake.read()
    assert desk.on_disk() == {1, 2, 3, 4, 5, 6}
    assert desk.ledger.counts("r").abandoned == 0
    assert desk.ledger.counts("r").duplicates_dropped == 3
    assert desk.ledger.counts("r").balanced
    desk.finish(1)
    intake.read()
    assert desk.on_disk() == {1, 2, 3, 4, 5, 6, 7}


def test_a_folder_that_lacks_stored_games_is_refused_and_the_ledger_stays(desk, tmp_path):
    intake = desk.intake()
    desk.finish(6)
    intake.read()
    desk.log.close()
    desk.folder = tmp_path / "another"
    with pytest.raises(StateConflict, match=r"holds 0 games, and 6 were stored.*azq runs restore"):
        desk.intake().agree_with_ledger()
    assert desk.ledger.counts("r").inserted == 6
