"""Whatever stands in a game record or a segment file: it is refused by name, or it is a game by the rules."""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_games import play_game, samples_of_one

from azq import games
from azq.errors import IllegalActionError, SegmentError, WireError
from azq.replay import framing
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire.arrays import unpack_record
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, SampleEvent

GAMES = {name: games.load(name) for name in ("tic_tac_toe", "connect_four")}
ARRAYS = ("actions", "policies", "root_values", "simulations", "weight_versions")


@cache
def event_of(name: str, uid: int) -> SampleEvent:
    return play_game(GAMES[name], uid)


def damaged(data: st.DataObject, good: bytes) -> bytes:
    """Bytes changed, cut off, added, or others altogether."""
    kind = data.draw(st.sampled_from(("change", "cut", "grow", "other")))
    if kind == "other" or not good:
        return data.draw(st.binary(max_size=300))
    if kind == "cut":
        return good[: data.draw(st.integers(0, len(good) - 1))]
    if kind == "grow":
        return good + data.draw(st.binary(min_size=1, max_size=64))
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    return bytes(changed)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_sample_event_is_refused_or_gives_targets_that_are_distributions(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(GAMES)))
    game, event = GAMES[name], event_of(name, data.draw(st.integers(1, 50)))
    names = data.draw(st.sets(st.sampled_from(ARRAYS), min_size=1, max_size=3))
    record = msgspec.structs.replace(event.record, **{name: damaged(data, getattr(event.record, name)) for name in sorted(names)})
    returns = data.draw(st.one_of(st.just(event.returns), st.lists(st.floats(), max_size=4).map(tuple)))
    try:
        samples = samples_of_one(game, SampleEvent(record, returns, event.worker, event.finished_ms), 0.5)
    except (WireError, IllegalActionError):
        return
    assert np.isfinite(samples.policies).all()
    assert np.allclose(samples.policies.sum(axis=1, dtype=np.float32), 1.0, atol=0.02)
    assert (np.abs(samples.values) <= 1.001).all()
    legal = np.unpackbits(samples.masks, axis=1, count=game.num_distinct_actions(), bitorder="little").astype(bool)
    assert not samples.policies[~legal].any()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_open_game_is_refused_or_has_its_shapes(data: st.DataObject) -> None:
    game = GAMES["tic_tac_toe"]
    good = event_of("tic_tac_toe", 1).record
    uid = data.draw(st.one_of(st.integers(-(2**63), 2**63 - 1), st.just(1)))
    name = data.draw(st.sampled_from(ARRAYS))
    record = msgspec.structs.replace(good, uid=uid, **{name: damaged(data, getattr(good, name))})
    try:
        arrays = unpack_record(record, game.num_distinct_actions(), game.value_size())
    except WireError:
        return
    assert len({len(array) for array in arrays.values()}) == 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_segment_is_refused_or_gives_its_first_games(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    frames = [encode(event_of("tic_tac_toe", uid)) for uid in (1, 2, 3)]
    whole = framing.header("tic_tac_toe") + framing.records(*frames)
    folder = tmp_path_factory.mktemp("segments")
    (folder / "000001.seg").write_bytes(damaged(data, whole))
    try:
        log = SegmentLog(folder, "tic_tac_toe")
    except SegmentError:
        return
    found = list(log.tail(10_000))
    assert found == frames[: len(found)]
    log.append([LogEntry(9, 1, encode(SampleEvent(GameRecord(9), (), "w", 0)))])
    log.close()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_what_was_synced_is_whole_or_refused_and_what_was_not_is_whole_or_cut(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    frames = [encode(event_of("tic_tac_toe", uid)) for uid in range(1, 7)]
    folder = tmp_path_factory.mktemp("segments")
    log = SegmentLog(folder, "tic_tac_toe")
    for first in (0, 2):
        log.append([LogEntry(uid + 1, 1, frames[uid]) for uid in (first, first + 1)])
    log.close()
    path = folder / "000001.seg"
    synced = path.read_bytes()
    whole = synced + framing.records(*frames[4:])
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start + 1, len(whole)))
    filler = data.draw(st.sampled_from((b"\x00", b"\xff", b"S")))
    torn = whole[:start] + filler * (end - start) + whole[end:]
    path.write_bytes(torn)
    try:
        found = list(SegmentLog(folder, "tic_tac_toe").tail(10_000))
    except SegmentError:
        assert start < len(synced) - framing.MARK_BYTES
        return
    assert found == frames[: len(found)]
    assert len(found) >= 4 or start < len(synced) - framing.MARK_BYTES < end  # the last mark went with what it vouched for
