"""Ledger and disk compared on a real broker: a ledger that balances by its own sums does not hide what its log lacks."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from conftest import Broker

from azq.bus.redis import RedisBus
from azq.config import Config
from azq.errors import EvaluationTimeout, StateConflict
from azq.host.brokers import with_urls
from azq.ledger import Ledger
from azq.ledger.types import Lease, RunState
from azq.parts.lab.drill.outcome import Discrepancy
from azq.parts.lab.drill.rehearse import DiskAuditor
from azq.parts.lab.drill.system import RUN, System
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Heartbeat, Job, RunRecord, SampleEvent

GAME = "tic_tac_toe"
FORGED = 1007


class Books:
    """A run of four games, of which two are finished, one is open and one is abandoned; the learner is played by the test."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.client = connect(broker.control_url)
        self.ledger, self.bus = Ledger(self.client), RedisBus(self.client)
        self.ledger.create_run(RunRecord(RUN, b"{}", {}, str(folder / RUN), 1))
        self.log = SegmentLog(folder / RUN / "segments", GAME)
        job = self.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu")).job
        lease = self.ledger.claim(job.job_id, 1, "w", 60.0)
        assert lease is not None
        self.lease: Lease = lease
        assert [record.uid for record in self.ledger.adopt(lease, 4)] == [1, 2, 3, 4]
        self.ledger.abandon(lease, 4, "no rules")
        self.ledger.replace_games(
            lease, [SampleEvent(GameRecord(uid, weight_versions=b"\7\0\0\0"), (1.0, -1.0), "w", 1) for uid in (1, 2)], 0
        )

    def learn(self, *written: int) -> None:
        """Acknowledges both games and says that both are stored, and writes these."""
        entries = self.bus.read([keys.samples(RUN)], keys.LEARNER_GROUP, "l", count=10, block_ms=0)
        frames = {decode(entry.frame, SampleEvent).record.uid: entry.frame for entry in entries}
        self.log.append([LogEntry(uid, 1, frames[uid]) for uid in written])
        self.ledger.record_inserted(RUN, 2, 0, ack=[entry.id for entry in entries])
        assert self.ledger.counts(RUN).balanced


@pytest.fixture
def books(broker: Broker, tmp_path: Path) -> Books:
    return Books(broker, tmp_path)


@pytest.fixture
def system(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    monkeypatch.setattr(importlib.import_module("azq.parts.lab.drill.rehearse"), "STILL_S", 0.5)  # the package has a function of that name
    found = System(tmp_path, GAME, [])
    monkeypatch.setattr(found, "config", lambda: with_urls(Config(), broker.control_url, broker.data_url))
    return found


@pytest.mark.parametrize(("written", "lost"), [((1, 2), set()), ((2,), {1}), ((), {1, 2})])
def test_games_that_were_acknowledged_and_not_written_are_lost(
    books: Books, system: System, written: tuple[int, ...], lost: set[int]
) -> None:
    books.learn(*written)
    books.ledger.release(books.lease, [])
    found = DiskAuditor(system).audit_at_the_end()
    assert found == Discrepancy(lost=frozenset(lost), abandoned=frozenset({(4, "no rules")}))
    assert books.ledger.run(RUN).state is RunState.PAUSED


def test_nothing_is_compared_while_somebody_holds_a_game_or_a_sample_waits(books: Books, system: System) -> None:
    with pytest.raises(EvaluationTimeout, match="the end of all leases and an empty sample stream"):
        DiskAuditor(system).audit_at_the_end()  # a lease and two samples
    books.ledger.release(books.lease, [])
    with pytest.raises(EvaluationTimeout, match="empty sample stream"):
        DiskAuditor(system).audit_at_the_end()
    books.learn(1, 2)
    assert DiskAuditor(system).audit_at_the_end().lost == set()


def test_games_played_with_weights_that_had_to_be_refused_are_found_out(books: Books, system: System) -> None:
    books.learn(1, 2)
    books.ledger.release(books.lease, [])
    system.refused.add(7)
    with pytest.raises(StateConflict, match="had to be refused: version 7"):
        DiskAuditor(system).audit_at_the_end()


def test_a_heartbeat_that_names_weights_to_be_refused_is_noticed_whoever_asks(books: Books, system: System) -> None:
    beat = Heartbeat("inference", "inference@h:1", "h", 1, "1", 2, 0, 0, weight_versions={RUN: FORGED})
    books.bus.put(keys.beat(beat.worker), encode(beat), life_s=10.0)
    assert [found.worker for found in system.beats("inference")] == [beat.worker]
    system.refused.add(FORGED)
    with pytest.raises(StateConflict, match=f"version {FORGED}"):
        system.serving()
