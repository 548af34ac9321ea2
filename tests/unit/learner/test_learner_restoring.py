"""Which games a log lacks for good: neither stored, nor played, nor on their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_broker import MemoryBus
from replay_games import frame, play_game

from azq import games
from azq.config import RunConfig, RunSections
from azq.learner.data.intake import _without, game_key, restore
from azq.ledger import Ledger
from azq.ledger.types import LearnerLease, LedgerCounts
from azq.replay.samples import count_samples
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire import keys
from azq.wire.codec import encode

GAME = games.load("tic_tac_toe")


@given(st.integers(1, 20), st.integers(0, 20), st.sets(st.integers(1, 45)))
def test_any_span_without_what_is_kept(first, length, kept):
    left = _without((first, first + length), kept)
    assert [uid for low, high in left for uid in range(low, high + 1)] == [u for u in range(first, first + length + 1) if u not in kept]


class Forgetful(Ledger):
    """A ledger that opened some games, a few of which are being played."""

    def __init__(self, opened: int, playing: set[int]) -> None:
        self.opened, self.playing = opened, playing

    def counts(self, run: str) -> LedgerCounts:
        return LedgerCounts(self.opened, 0, len(self.playing), 0, 0, 0, 0)

    def open_uids(self, run: str) -> set[int]:
        return self.playing

    def restore(self, run: str, stored: int, highest: int, missing: Sequence[tuple[int, int]], lease: LearnerLease | None = None) -> int:
        self.told = stored, highest, missing
        return len(missing)


@pytest.mark.parametrize(
    ("opened", "missing"),
    [(0, [(1, 1), (4, 4)]), (6, [(1, 1), (4, 4)]), (9, [(1, 1), (4, 4), (9, 9)])],
)
def test_the_ledger_is_told_what_is_stored_and_what_is_gone(tmp_path, opened, missing):
    log, bus = SegmentLog(tmp_path, "tic_tac_toe"), MemoryBus()
    events = [play_game(GAME, uid) for uid in (2, 6)]
    log.append([LogEntry(event.record.uid, count_samples(event), encode(event)) for event in events])
    for sample in (frame(GAME, 3), b"noise", frame(GAME, 8), frame(GAME, 7)):
        bus.publish(keys.samples("r"), sample)
    ledger = Forgetful(opened, {5})
    assert restore("r", ledger, bus, log, None) == len(missing)
    assert ledger.told == (2, 6, missing)


def test_a_stream_of_any_length_is_looked_through(tmp_path, monkeypatch):
    log, bus = SegmentLog(tmp_path, "tic_tac_toe"), MemoryBus()
    sample = frame(GAME, 1)
    for _ in range(1001):
        bus.publish(keys.samples("r"), sample)
    bus.publish(keys.samples("r"), frame(GAME, 2))
    ledger, reads, after = Forgetful(3, set()), [], bus.after
    monkeypatch.setattr(bus, "after", lambda *which, **more: reads.append(which) or after(*which, **more))
    restore("r", ledger, bus, log, None)
    assert ledger.told == (0, 0, [(3, 3)])
    assert len(reads) == 3, "many entries at once, and none twice"


def test_a_game_is_named_with_its_parameters_in_one_order():
    given: tuple[dict[str, Any], ...] = ({}, {"b": 1, "a": 2})
    plain, ordered = (RunSections(run=RunConfig(game="blob", params=params)) for params in given)
    assert game_key(plain) == "blob"
    assert game_key(ordered) == 'blob{"a": 2, "b": 1}'
