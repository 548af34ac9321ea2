"""A control plane that comes back without its last commands, and a learner that kept its disk: every game is played and stored once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from learner_doubles import DictStore, ListTracker
from learner_workplace import turns
from replay_games import play_game

from azq import games
from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus
from azq.config import LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.learner.data import intake_loop
from azq.learner.learner import Learner
from azq.learner.opening import LearnerSetup
from azq.ledger import Ledger
from azq.replay.segments import SegmentLog
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord, SampleEvent

RUN = "ttt"
GAMES = 24
SECTIONS = RunSections(
    run=RunConfig(game="tic_tac_toe"),
    network=NetworkConfig(blocks=1, channels=8),
    learner=LearnerConfig(device="cpu", threads=1, batch_size=16, min_window=10_000, publish_every_s=3600.0, checkpoint_every_s=3600.0),
)


class Fleet:
    """A control plane of its own, a learner beside it, and a worker that finishes what is open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmbeddedServer("control", folder / "control")
        self.server.start()
        self.client = connect(self.server.url)
        self.bus, self.ledger = RedisBus(self.client), Ledger(self.client)
        self.game = games.load("tic_tac_toe")
        self.ledger.create_run(RunRecord(RUN, b"{}", {}, str(folder / RUN), int(time.time() * 1000)))
        job = self.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=10_000, slice_s=60.0)).job
        lease = self.ledger.claim(job.job_id, 1, "selfplay@test:1", 600.0)
        assert lease is not None
        self.lease = lease
        self.ledger.adopt(lease, GAMES)

    def learner(self) -> Learner:
        return LearnerSetup(
            RUN,
            self.folder / RUN,
            SECTIONS,
            self.game,
            bus=self.bus,
            ledger=self.ledger,
            store=DictStore(),
            tracker=ListTracker(),
            consumer="learner@test:1",
        ).open()

    def open(self) -> list[int]:
        uids: list[bytes] = self.client.hkeys(keys.open_games(RUN))  # type: ignore[assignment]
        return sorted(map(int, uids))

    def finish(self, count: int = GAMES) -> None:
        for uid in self.open()[:count]:
            self.ledger.finish_games(self.lease, [play_game(self.game, uid)])

    def file(self) -> Path:
        return next((self.folder / "control").glob("**/*.incr.aof"))

    def size(self) -> int:
        """Of the file, once it holds all that was written: while a disk is slow to sync, a server holds writes back for seconds."""
        with self.client.pipeline(transaction=False) as pipe:  # on one connection, whose last write is waited for
            pipe.hset("azq:test:written", "all", 1)
            pipe.execute_command("WAITAOF", 1, 0, 60_000)
            _, (synced, _) = pipe.execute()
        assert synced == 1
        return self.file().stat().st_size

    def come_back(self, place: Callable[[bytes], int]) -> None:
        """Kills the server, cuts its file at a place, and starts it again."""
        self.server.kill()
        self.server.stop()
        data = self.file().read_bytes()
        self.file().write_bytes(data[: place(data)])
        self.server.start()

    def close(self) -> None:
        self.client.close()
        self.server.stop()


def command_ends(data: bytes, begin: int) -> list[int]:
    """Offsets behind each command of an append-only file, from the one at `begin` on."""
    ends = [begin]
    while ends[-1] < len(data):
        line = data.index(b"\r\n", ends[-1])
        place = line + 2
        for _ in range(int(data[ends[-1] + 1 : line])):
            line = data.index(b"\r\n", place)
            place = line + 2 + int(data[place + 1 : line]) + 2
        ends.append(place)
    return ends


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("back"))
    yield made
    made.close()


def stored(folder: Path) -> list[int]:
    return [decode(frame, SampleEvent).record.uid for frame in SegmentLog(folder / RUN / "segments", "tic_tac_toe").tail(1 << 40)]


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95, 0.98, 1.0])
def test_cut_anywhere_every_game_is_stored_once_and_the_ledger_balances(fleet, kept, monkeypatch):
    monkeypatch.setattr(intake_loop, "AGREE_EVERY_S", 0.0)
    begin = fleet.size()
    learner = fleet.learner()
    turns(learner, 3)
    fleet.finish(GAMES // 2)
    turns(learner, 3)
    fleet.finish(GAMES // 4)
    turns(learner, 3)
    assert len(stored(fleet.folder)) == GAMES // 2 + GAMES // 4
    fleet.come_back(lambda data: (ends := command_ends(data, begin))[int(kept * (len(ends) - 1))])
    turns(learner, 3)
    fleet.finish()
    turns(learner, 3)
    learner.finish()
    counts = fleet.ledger.counts(RUN)
    assert sorted(stored(fleet.folder)) == list(range(1, GAMES + 1))
    assert counts.balanced
    assert (counts.finished, counts.inserted, counts.in_transit) == (GAMES, GAMES, 0)


def test_an_acknowledgement_lost_between_two_calls_is_made_again(fleet, monkeypatch):
    learner = fleet.learner()
    turns(learner, 3)
    fleet.finish()
    turns(learner, 3)
    assert fleet.ledger.counts(RUN).in_transit == 0
    fleet.come_back(lambda data: data.rindex(b"*1\r\n$5\r\nMULTI"))
    pending: dict[str, int] = fleet.client.xpending(keys.samples(RUN), keys.LEARNER_GROUP)
    assert pending["pending"] == fleet.ledger.counts(RUN).in_transit == GAMES
    monkeypatch.setattr(intake_loop, "AGREE_EVERY_S", 0.0)
    turns(learner, 3)
    counts = fleet.ledger.counts(RUN)
    assert (counts.balanced, counts.inserted, counts.in_transit) == (True, GAMES, 0)
    assert sorted(stored(fleet.folder)) == list(range(1, GAMES + 1))
