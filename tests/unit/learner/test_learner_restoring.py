"""Which games a log lacks for good: neither stored, nor played, nor on their way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_worlds import World
from replay_games import frame, play_game

from azq import games
from azq.config import RunConfig, RunSections
from azq.learner.data.intake import _without, game_key, restore
from azq.replay.samples import count_samples
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire import keys
from azq.wire.codec import encode

GAME = games.load("tic_tac_toe")


@given(st.integers(1, 20), st.integers(0, 20), st.sets(st.integers(1, 45)))
def test_any_span_without_what_is_kept(first, length, kept):
    left = _without((first, first + length), kept)
    assert [uid for low, high in left for uid in range(low, high + 1)] == [u for u in range(first, first + length + 1) if u not in kept]


@pytest.mark.parametrize(
    ("opened", "missing"),
    [(0, {1, 4}), (6, {1, 4}), (9, {1, 4, 9})],
)
def test_the_ledger_is_told_what_is_stored_and_what_is_gone(tmp_path, opened, missing):
    log, world = SegmentLog(tmp_path, "tic_tac_toe"), World()
    events = [play_game(GAME, uid) for uid in (2, 6)]
    log.append([LogEntry(event.record.uid, count_samples(event), encode(event)) for event in events])
    for sample in (frame(GAME, 3), b"noise", frame(GAME, 8), frame(GAME, 7)):
        world.bus.publish(keys.samples("r"), sample)
    world.bus.client.hset(keys.ledger("r"), "opened", opened)
    world.bus.client.hset(keys.open_games("r"), "5", b"")  # is being played
    assert restore("r", world.ledger, world.bus, log, None) == len(missing)
    counts = world.ledger.counts("r")
    assert (counts.inserted, counts.opened, set(world.ledger.abandoned("r"))) == (2, max(opened, 6), missing)


def test_a_stream_of_any_length_is_looked_through(tmp_path, monkeypatch):
    log, world = SegmentLog(tmp_path, "tic_tac_toe"), World()
    sample = frame(GAME, 1)
    for _ in range(1001):
        world.bus.publish(keys.samples("r"), sample)
    world.bus.publish(keys.samples("r"), frame(GAME, 2))
    world.bus.client.hset(keys.ledger("r"), "opened", 3)
    reads, after = [], world.bus.after
    monkeypatch.setattr(world.bus, "after", lambda *which, **more: reads.append(which) or after(*which, **more))
    restore("r", world.ledger, world.bus, log, None)
    counts = world.ledger.counts("r")
    assert (counts.inserted, counts.opened, set(world.ledger.abandoned("r"))) == (0, 3, {3})
    assert len(reads) == 3, "many entries at once, and none twice"


def test_a_game_is_named_with_its_parameters_in_one_order():
    given: tuple[dict[str, Any], ...] = ({}, {"b": 1, "a": 2})
    plain, ordered = (RunSections(run=RunConfig(game="blob", params=params)) for params in given)
    assert game_key(plain) == "blob"
    assert game_key(ordered) == 'blob{"a": 2, "b": 1}'
