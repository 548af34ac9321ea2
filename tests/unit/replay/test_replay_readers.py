"""Reading recorded games beside the process that appends them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from replay_games import entry, log_of, play_game

from azq import games
from azq.errors import NotFound, StoreError
from azq.replay.framing import MARK_BYTES
from azq.replay.readers import KEPT_INDEXES, LogPlace, SegmentFollower, SegmentReader
from azq.replay.samples import count_samples
from azq.replay.segments import SegmentLog
from azq.wire.codec import decode, uid_of
from azq.wire.messages import SampleEvent

GAME = games.load("tic_tac_toe")
PER_FILE = 1_200  # bytes; a few games


def watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SegmentReader, list[int]]:
    """A reader, and the files whose index it asks for."""
    reader, looked = SegmentReader(folder), list[int]()
    index = reader._index
    monkeypatch.setattr(reader, "_index", lambda segment: looked.append(segment) or index(segment))
    return reader, looked


def uids(reader: SegmentReader, count: int, before: LogPlace | None = None) -> list[int]:
    return [event.record.uid for _, event in reader.newest(count, before)]


def test_the_newest_come_first_and_pages_follow_without_gap_or_overlap(tmp_path: Path) -> None:
    log_of(tmp_path, *range(1, 41), roll_bytes=PER_FILE).close()
    assert len(list(tmp_path.glob("*.seg"))) > KEPT_INDEXES
    reader, seen, before = SegmentReader(tmp_path), [], None
    while page := reader.newest(7, before):
        seen += [event.record.uid for _, event in page]
        before = page[-1][0]
    assert seen == list(range(40, 0, -1))


@pytest.mark.parametrize("count", [1, 5, 7, 40, 99])
def test_no_more_games_come_than_were_asked_for_and_the_last_ones_come_in_order(tmp_path: Path, count: int) -> None:
    log_of(tmp_path, *range(1, 41), roll_bytes=PER_FILE).close()
    reader = SegmentReader(tmp_path)
    assert uids(reader, count) == list(range(40, 0, -1))[:count]
    assert [event.record.uid for event in reader.last(count)] == list(range(1, 41))[-count:]


def test_every_game_is_found_by_number_and_is_the_one_that_was_written(tmp_path: Path) -> None:
    log_of(tmp_path, *range(1, 41), roll_bytes=PER_FILE).close()
    reader = SegmentReader(tmp_path)
    assert all(reader.find(uid) == play_game(GAME, uid) for uid in (1, 40, 17, 18, 2, 39))
    with pytest.raises(NotFound, match="game 99"):
        reader.find(99)


def test_a_search_for_a_game_looks_into_few_files_and_keeps_few_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_of(tmp_path, *range(1, 41), roll_bytes=600).close()
    assert len(list(tmp_path.glob("*.seg"))) > 20
    reader, looked = watched(tmp_path, monkeypatch)
    with pytest.raises(NotFound):
        reader.find(99)
    assert looked == [max(int(path.stem) for path in tmp_path.glob("*.seg"))], "closed ones say what they hold"
    assert len(reader._indexes) <= KEPT_INDEXES


def test_what_is_appended_later_is_seen_and_a_half_written_tail_is_not(tmp_path: Path) -> None:
    log = log_of(tmp_path, *range(1, 4), roll_bytes=1 << 20)
    reader = SegmentReader(tmp_path)
    assert uids(reader, 9) == [3, 2, 1]
    path = next(tmp_path.glob("*.seg"))
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x40\x00\x00\x00\x00\x00\x00\x00half")
    assert uids(reader, 9) == [3, 2, 1]
    os.truncate(path, whole)
    log.append([entry(4)])
    assert uids(reader, 9) == [4, 3, 2, 1]
    log.close()


def test_a_file_that_was_cut_and_written_anew_is_read_anew(tmp_path: Path) -> None:
    log_of(tmp_path, *range(1, 4), roll_bytes=1 << 20).close()
    reader = SegmentReader(tmp_path)
    assert uids(reader, 9) == [3, 2, 1]
    next(tmp_path.glob("*.seg")).unlink()
    log_of(tmp_path, *range(5, 7), roll_bytes=1 << 20).close()
    assert uids(reader, 9) == [6, 5]


def test_reading_changes_nothing_on_disk(tmp_path: Path) -> None:
    log_of(tmp_path, *range(1, 10), roll_bytes=PER_FILE).close()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    reader = SegmentReader(tmp_path)
    reader.newest(9)
    reader.find(3)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before


def test_no_log_here_is_said_with_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="learner's host"):
        SegmentReader(tmp_path / "none").newest(3)


def test_a_damaged_record_ends_what_can_be_read_of_its_file(tmp_path: Path) -> None:
    log_of(tmp_path, *range(1, 4), roll_bytes=1 << 20).close()
    path = next(tmp_path.glob("*.seg"))
    reader = SegmentReader(tmp_path)
    assert uids(reader, 9) == [3, 2, 1]
    data = bytearray(path.read_bytes())
    data[-5 - MARK_BYTES] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StoreError, match="ask again"):
        reader.newest(9)
    assert uids(reader, 9) == [2, 1]
    assert uid_of(b"garbage") == 0


def test_a_game_of_a_file_that_was_moved_away_is_told_from_one_that_never_was(tmp_path: Path) -> None:
    log_of(tmp_path, *range(1, 41), roll_bytes=PER_FILE).close()
    reader = SegmentReader(tmp_path)
    assert reader.find(1).record.uid == 1
    (tmp_path / "000001.seg").rename(tmp_path / "elsewhere")
    for one in (reader, SegmentReader(tmp_path)):
        with pytest.raises(StoreError, match=r"000001\.seg was moved away.*put it back"):
            one.find(1)
        with pytest.raises(NotFound, match="game 99"):
            one.find(99)
        assert one.find(40).record.uid == 40
        assert 1 not in uids(one, 40)


def test_a_game_of_a_closed_file_is_found_without_a_look_at_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_of(tmp_path, *range(1, 41), roll_bytes=600).close()
    reader, looked = watched(tmp_path, monkeypatch)
    assert reader.find(20).record.uid == 20
    assert len(set(looked)) == 1


def count(frame: bytes) -> int:
    return count_samples(decode(frame, SampleEvent))


def add(log: SegmentLog, first: int, last: int) -> None:
    for uid in range(first, last + 1):
        log.append([entry(uid)])


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def read(follower: SegmentFollower, most: int = 1000) -> list[int]:
    return [uid_of(frame) for frame in follower.read(most)]


@pytest.mark.parametrize("roll_bytes", [64 << 20, 2000])
def test_each_game_is_read_once_in_order(tmp_path, roll_bytes):
    log = log_of(tmp_path, roll_bytes=roll_bytes)
    follower = SegmentFollower(tmp_path, 10_000, count)
    assert read(follower) == []
    add(log, 1, 7)
    assert read(follower, 3) == [1, 2, 3]
    assert read(follower) == [4, 5, 6, 7]
    assert read(follower) == []
    add(log, 8, 30)
    seen = read(follower, 5)
    while new := read(follower, 5):
        seen += new
    assert seen == list(range(8, 31))
    assert (len(files_in(tmp_path)) > 1) is (roll_bytes == 2000)


def test_it_begins_where_the_newest_samples_do(tmp_path):
    log_of(tmp_path, *range(1, 41), roll_bytes=2000)
    newest = read(SegmentFollower(tmp_path, 1, count))
    assert newest == list(range(newest[0], 41))
    assert len(newest) < 20
    assert read(SegmentFollower(tmp_path, 10_000, count)) == list(range(1, 41))


@pytest.mark.parametrize("closed", [False, True])
def test_it_begins_at_the_file_that_fills_it_and_no_earlier(tmp_path, closed):
    log_of(tmp_path, *range(1, 5), roll_bytes=1)
    if not closed:
        for path in tmp_path.glob("*.idx"):
            path.unlink()
    three, four = (count_samples(play_game(GAME, uid)) for uid in (3, 4))
    assert read(SegmentFollower(tmp_path, four, count)) == [4]
    assert read(SegmentFollower(tmp_path, four + 1, count)) == [3, 4]
    assert read(SegmentFollower(tmp_path, four + three, count)) == [3, 4]


def test_a_half_written_record_waits_until_it_is_whole(tmp_path):
    log_of(tmp_path, *range(1, 4))
    follower = SegmentFollower(tmp_path, 10_000, count)
    whole = files_in(tmp_path)[0].read_bytes()
    files_in(tmp_path)[0].write_bytes(whole[: -5 - MARK_BYTES])
    assert read(follower) == [1, 2]
    files_in(tmp_path)[0].write_bytes(whole)
    assert read(follower) == [3]


def test_what_was_cut_off_and_written_again_is_read(tmp_path):
    log = log_of(tmp_path, *range(1, 3))
    follower = SegmentFollower(tmp_path, 10_000, count)
    path = files_in(tmp_path)[0]
    two = path.read_bytes()
    add(log, 3, 3)
    assert read(follower) == [1, 2, 3]
    path.write_bytes(two)  # as the learner cuts what the disk did not take for certain
    assert read(follower) == []
    log.close()
    log_of(tmp_path, *range(4, 5))
    assert read(follower) == [4]


def test_a_file_begun_just_now_is_empty(tmp_path):
    (tmp_path / "000001.seg").touch()
    follower = SegmentFollower(tmp_path, 10_000, count)
    assert read(follower) == []
    log_of(tmp_path, *range(1, 3))
    assert read(follower) == [1, 2]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "000001.seg").mkdir()
    with pytest.raises(StoreError, match=r"000001\.seg"):
        read(SegmentFollower(tmp_path, 10, count))


def test_files_that_were_moved_away_are_not_missed(tmp_path):
    log_of(tmp_path, *range(1, 41), roll_bytes=2000)
    for path in files_in(tmp_path)[:3]:
        path.unlink()
    newest = read(SegmentFollower(tmp_path, 10_000, count))
    assert newest == list(range(newest[0], 41))
    assert newest[0] > 1


def test_a_file_that_cannot_be_read_is_not_called_moved_away(tmp_path: Path) -> None:
    log_of(tmp_path, *range(1, 4), roll_bytes=PER_FILE).close()
    path = next(tmp_path.glob("*.seg"))
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be read: Is a directory; let the daemon's user read"):
        SegmentReader(tmp_path).newest(9)
