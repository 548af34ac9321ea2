"""One worker's games leave the window at once and stay out after a restart; the log and the ledger keep theirs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from learner_workplace import IntakeDesk
from replay_games import play_game

from azq import games
from azq.errors import StoreError
from azq.files import make_folders
from azq.replay.samples import samples_of
from azq.replay.window import PURGED, Purges, Window
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.machines import PurgedGames, PurgeOrders
from azq.wire.messages import SampleEvent

GAME = games.load("connect_four")
BAD, GOOD = "browser:bad", "browser:good"


def played(uid: int, worker: str, finished_ms: int = 5) -> SampleEvent:
    return msgspec.structs.replace(play_game(GAME, uid), worker=worker, finished_ms=finished_ms)


def test_a_window_drops_one_workers_samples_and_keeps_the_order_of_the_others() -> None:
    for capacity in (1000, 70):  # room enough, and a ring that went round
        window, control = Window(GAME, capacity), Window(GAME, capacity)
        events = [played(uid, BAD if uid % 3 == 0 else GOOD) for uid in range(1, 10)]
        for event in events:
            window.add(samples_of(GAME, [event])[0])
        before = len(window)
        kept = before - window.drop(BAD)[1]
        for event in events:
            if event.worker == GOOD:
                control.add(samples_of(GAME, [event])[0])
        assert kept == len(window) <= len(control)
        ages = np.arange(kept)
        assert np.array_equal(window.newest(ages).packed, control.newest(ages).packed)
        assert np.array_equal(window.newest(ages).policies, control.newest(ages).policies)
        window.add(samples_of(GAME, [played(99, GOOD)])[0])
        assert window.drop(BAD) == (0, 0)
        assert window.drop("browser:unknown") == (0, 0)


def test_a_drop_counts_games_and_samples() -> None:
    window, events = Window(GAME, 1000), [played(uid, BAD if uid < 4 else GOOD) for uid in range(1, 8)]
    samples, counts = samples_of(GAME, events)
    window.add(samples)
    assert window.drop(BAD) == (3, sum(counts[:3]))


def test_orders_are_kept_on_disk_and_only_grow(tmp_path: Path) -> None:
    purges, other = Purges(tmp_path), Purges(tmp_path)
    assert not purges
    assert purges.order({BAD: 10}) == {BAD: 10}
    assert purges.order({BAD: 9}) == {}
    assert other.reload() == [BAD]
    assert other.reload() == []
    assert [other.drops(played(1, *of)) for of in ((BAD, 10), (BAD, 11), (GOOD, 1))] == [True, False, False]
    assert other.order({GOOD: 0}) == {GOOD: 0}
    assert not other.drops(played(1, "browser:unknown", 0))
    (tmp_path / PURGED).write_text("{")
    with pytest.raises(StoreError, match="azq volunteers purge"):
        other.reload()


def finish(run: IntakeDesk, worker: str, count: int, finished_ms: int = 5) -> None:
    run.finish(count, change=lambda event: msgspec.structs.replace(event, worker=worker, finished_ms=finished_ms))


def test_a_purge_changes_the_window_now_and_after_a_restart_and_nothing_else(tmp_path: Path) -> None:
    run = IntakeDesk(tmp_path, "connect_four")
    folder = tmp_path / "segments"
    make_folders(folder)
    intake = run.intake(Purges(folder))
    intake.agree_with_ledger()
    finish(run, GOOD, 4)
    finish(run, BAD, 3)
    intake.read()
    before, bytes_before = len(intake.window), [path.read_bytes() for path in folder.glob("*.seg")]

    run.bus.put(keys.purges("r"), encode(PurgeOrders({BAD: 5})))
    intake.agree_with_ledger()
    frame = run.bus.get(keys.purged("r", BAD))
    assert frame is not None
    said = decode(frame, PurgedGames)
    assert (said.until_ms, said.games, said.window) == (5, 3, before)
    assert len(intake.window) == before - said.samples
    assert run.ledger.counts("r").balanced
    assert (intake.segments.games, run.ledger.counts("r").inserted) == (7, 7)
    assert [path.read_bytes() for path in folder.glob("*.seg")] == bytes_before

    finish(run, BAD, 1)  # was on its way
    intake.read()
    assert len(intake.window) == before - said.samples
    finish(run, BAD, 1, finished_ms=6)  # after he was let in again
    intake.read()
    after = len(intake.window)
    assert after > before - said.samples
    intake.agree_with_ledger()
    assert len(intake.window) == after, "an order is followed once"
    intake.segments.close()
    again = run.intake(Purges(folder))
    again.agree_with_ledger()
    assert len(again.window) == after
    assert again.segments.games == 9
