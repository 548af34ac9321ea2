"""The segment log keeps every acknowledged game, cuts a half-written tail, and refuses all other damage by name."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from replay_games import play_game

from azq import games
from azq.errors import SegmentError, StoreError
from azq.replay import disk, framing
from azq.replay.samples import count_samples
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire.codec import encode

GAME = "tic_tac_toe"


def entry(uid: int, **options: int) -> LogEntry:
    event = play_game(games.load(GAME), uid, **options)
    return LogEntry(uid, count_samples(event), encode(event))


def filled(folder: Path, count: int, **options: int) -> list[LogEntry]:
    entries = [entry(uid) for uid in range(1, count + 1)]
    log = SegmentLog(folder, GAME, **options)
    for one in entries:
        log.append([one])
    log.close()
    return entries


def all_frames(folder: Path) -> list[bytes]:
    log = SegmentLog(folder, GAME)
    try:
        return list(log.tail(1 << 40))
    finally:
        log.close()


def test_what_was_appended_is_there_after_reopening(tmp_path):
    entries = filled(tmp_path, 5)
    log = SegmentLog(tmp_path, GAME)
    assert log.games == 5
    assert log.samples == sum(one.samples for one in entries)
    assert all(uid in log for uid in range(1, 6))
    assert 6 not in log
    assert list(log.tail(1 << 40)) == [one.frame for one in entries]


def test_random_opening_plies_do_not_count_as_samples(tmp_path):
    event = play_game(games.load(GAME), 1, searched_from=2)
    assert count_samples(event) == len(event.record.actions) // 2 - 2


def test_segments_roll_and_the_log_goes_on_in_the_last(tmp_path):
    entries = filled(tmp_path, 6, roll_bytes=len(entry(1).frame) * 2)
    assert len(list(tmp_path.glob("*.seg"))) >= 3
    log = SegmentLog(tmp_path, GAME)
    log.append([entry(7)])
    log.close()
    assert all_frames(tmp_path) == [*(one.frame for one in entries), entry(7).frame]


def test_tail_yields_the_newest_games_that_hold_so_many_samples(tmp_path):
    entries = filled(tmp_path, 6, roll_bytes=len(entry(1).frame) * 2)
    log = SegmentLog(tmp_path, GAME)
    wanted = entries[-1].samples + 1
    assert list(log.tail(wanted)) == [one.frame for one in entries[-2:]]


def test_a_stored_game_number_is_refused_a_second_time(tmp_path):
    filled(tmp_path, 2)
    log = SegmentLog(tmp_path, GAME)
    with pytest.raises(ValueError, match="once"):
        log.append([entry(2)])
    with pytest.raises(ValueError, match="once"):
        log.append([entry(3), entry(3)])
    assert log.games == 2


@pytest.mark.parametrize("lost", [1, 7, 9, 40])
def test_half_written_tail_is_cut_to_the_last_whole_record_and_said(tmp_path, capsys, lost):
    entries = filled(tmp_path, 3)
    path = tmp_path / "000001.seg"
    os.truncate(path, path.stat().st_size - lost)
    assert all_frames(tmp_path) == [one.frame for one in entries[:2]]
    said = capsys.readouterr().out
    assert "segment_tail_cut" in said
    assert "000001.seg" in said
    log = SegmentLog(tmp_path, GAME)
    log.append([entries[2]])
    assert log.games == 3


def test_zeroes_behind_the_last_record_are_a_half_written_tail(tmp_path):
    entries = filled(tmp_path, 2)
    with (tmp_path / "000001.seg").open("ab") as file:
        file.write(bytes(100))
    assert all_frames(tmp_path) == [one.frame for one in entries]


def test_header_cut_short_is_a_half_written_tail(tmp_path):
    entries = filled(tmp_path, 2)
    (tmp_path / "000002.seg").write_bytes(framing.header(GAME)[:5])
    assert all_frames(tmp_path) == [one.frame for one in entries]
    log = SegmentLog(tmp_path, GAME)
    log.append([entry(3)])
    assert log.games == 3


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("place", ["length", "checksum", "frame"])
def test_damage_before_whole_records_names_file_offset_and_remedy(tmp_path, place):
    entries = filled(tmp_path, 3)
    start = len(framing.header(GAME))
    second = start + len(framing.record(entries[0].frame))
    path = tmp_path / "000001.seg"
    before = path.read_bytes()
    flip(path, second + {"length": 1, "checksum": 5, "frame": 30}[place])
    with pytest.raises(SegmentError, match=rf"000001\.seg at offset {second}: .*truncate -s {second}"):
        SegmentLog(tmp_path, GAME)
    assert len(path.read_bytes()) == len(before)


def test_half_written_tail_of_an_earlier_segment_is_damage(tmp_path):
    filled(tmp_path, 6, roll_bytes=len(entry(1).frame) * 2)
    path = tmp_path / "000001.seg"
    os.truncate(path, path.stat().st_size - 3)
    with pytest.raises(SegmentError, match=r"000001\.seg at offset"):
        SegmentLog(tmp_path, GAME)


def test_missing_segment_is_named(tmp_path):
    filled(tmp_path, 6, roll_bytes=len(entry(1).frame) * 2)
    (tmp_path / "000002.seg").unlink()
    with pytest.raises(SegmentError, match=r"000002\.seg is missing"):
        SegmentLog(tmp_path, GAME)


def test_segments_of_another_game_or_schema_are_refused(tmp_path):
    filled(tmp_path, 2)
    with pytest.raises(SegmentError, match=r"'tic_tac_toe'.*'connect_four'"):
        SegmentLog(tmp_path, "connect_four")
    flip(tmp_path / "000001.seg", len(framing.MAGIC))
    with pytest.raises(SegmentError, match="written with schema"):
        SegmentLog(tmp_path, GAME)


def test_full_disk_leaves_nothing_of_the_call_and_later_appends_work(tmp_path, monkeypatch):
    entries = filled(tmp_path, 2)
    log = SegmentLog(tmp_path, GAME)
    size = (tmp_path / "000001.seg").stat().st_size

    def write_some(file: int, data: bytes) -> None:
        os.write(file, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_all", write_some)
        with pytest.raises(StoreError, match=r"No space left.*free disk space"):
            log.append([entry(3), entry(4)])
    assert (tmp_path / "000001.seg").stat().st_size == size
    assert log.games == 2
    assert 3 not in log
    log.append([entry(3)])
    log.close()
    assert all_frames(tmp_path) == [*(one.frame for one in entries), entry(3).frame]


def test_full_disk_at_a_new_segment_leaves_no_file(tmp_path, monkeypatch):
    filled(tmp_path, 1)
    log = SegmentLog(tmp_path, GAME, roll_bytes=1)

    def refuse(file: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_all", refuse)
        with pytest.raises(StoreError):
            log.append([entry(2)])
    assert not (tmp_path / "000002.seg").exists()
    log.append([entry(2)])
    assert log.games == 2


def test_folder_that_cannot_be_used_is_a_store_error(tmp_path):
    (tmp_path / "segments").write_text("a file")
    with pytest.raises(StoreError, match="cannot be opened"):
        SegmentLog(tmp_path / "segments", GAME)
