"""The segment log keeps every acknowledged game, cuts a half-written tail, and refuses all other damage by name."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from replay_games import entry, log_of

from azq.errors import SegmentError, StoreError
from azq.files import write_all
from azq.replay import framing, segments
from azq.replay.index import BLOCK_GAMES, read_index, write_index
from azq.replay.segments import LogEntry, SegmentLog, _start_of_tail
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent

GAME = "tic_tac_toe"
OLD = Path(__file__).parents[2] / "golden" / "segments"  # games 3, 1, 2, 5, 4, 7, 6, 8 as azq wrote them before it had indexes


def event_of(uid: int) -> SampleEvent:
    return decode(entry(uid).frame, SampleEvent)


def all_games(folder: Path) -> list[SampleEvent]:
    return [decode(frame, SampleEvent) for frame in all_frames(folder)]


def filled(folder: Path, count: int, **options: Any) -> list[LogEntry]:
    log_of(folder, *range(1, count + 1), **options).close()
    return [entry(uid) for uid in range(1, count + 1)]


def all_frames(folder: Path) -> list[bytes]:
    log = SegmentLog(folder, GAME)
    try:
        return list(log.tail(1 << 40))
    finally:
        log.close()


def test_what_was_appended_is_there_after_reopening(tmp_path):
    entries = filled(tmp_path, 5)
    log = SegmentLog(tmp_path, GAME)
    assert (log.games, log.created_ms) == (5, 0)
    assert log.samples == sum(one.samples for one in entries)
    assert all(uid in log for uid in range(1, 6))
    assert 6 not in log
    assert list(log.tail(1 << 40)) == [one.frame for one in entries]


def test_segments_roll_and_the_log_goes_on_in_the_last(tmp_path):
    entries = filled(tmp_path, 6, roll_bytes=len(entry(1).frame) * 2)
    assert len(list(tmp_path.glob("*.seg"))) >= 3
    log = SegmentLog(tmp_path, GAME)
    log.append([entry(7)])
    log.close()
    assert all_frames(tmp_path) == [*(one.frame for one in entries), entry(7).frame]


def test_the_end_is_behind_the_last_game_and_at_first_before_a_file_that_is_to_come(tmp_path):
    log = SegmentLog(tmp_path, GAME, roll_bytes=1)
    assert log.end == (1, 0)
    for uid in (1, 2, 3):
        log.append([entry(uid)])
        assert log.end == (uid, (tmp_path / f"{uid:06}.seg").stat().st_size)
    log.close()


def test_tail_yields_the_newest_games_that_hold_so_many_samples(tmp_path):
    entries = filled(tmp_path, 6, roll_bytes=1)
    log = SegmentLog(tmp_path, GAME)
    assert len(list(tmp_path.glob("*.seg"))) == 6
    wanted = entries[-1].samples + 1
    assert list(log.tail(wanted)) == [one.frame for one in entries[-2:]]
    assert list(log.tail(wanted - 1)) == [entries[-1].frame]


def test_tail_begins_within_a_block_of_games_where_the_samples_do(tmp_path):
    log = SegmentLog(tmp_path, GAME)
    log.append([entry(uid) for uid in range(1, 2 * BLOCK_GAMES + 11)])
    assert len(list(log.tail(1))) == 10
    last = sum(entry(uid).samples for uid in range(2 * BLOCK_GAMES + 1, 2 * BLOCK_GAMES + 11))
    assert len(list(log.tail(last))) == 10
    assert len(list(log.tail(last + 1))) == BLOCK_GAMES + 10


@pytest.mark.parametrize(
    ("samples", "start"), [(1, (1, 0)), (7, (1, 0)), (8, (0, 256)), (12, (0, 256)), (13, (0, 0)), (22, (0, 0)), (23, (0, 0)), (99, (0, 0))]
)
def test_a_tail_begins_at_the_block_that_fills_it(samples, start):
    assert _start_of_tail([(10, 5), (7,), ()], samples) == start


def test_a_tail_of_several_files_skips_games_in_the_first_only(tmp_path):
    log = SegmentLog(tmp_path, GAME, roll_bytes=1)
    log.append([entry(uid) for uid in range(1, BLOCK_GAMES + 11)])
    log.append([entry(uid) for uid in range(300, 303)])
    log.append([entry(400)])
    last = sum(entry(uid).samples for uid in (300, 301, 302, 400))
    wanted = [entry(uid).frame for uid in (*range(BLOCK_GAMES + 1, BLOCK_GAMES + 11), 300, 301, 302, 400)]
    assert list(log.tail(last + 1)) == wanted
    assert list(log.tail(last)) == wanted[10:]


@pytest.mark.parametrize(("spare", "files"), [(0, 1), (-1, 2)])
def test_a_file_is_filled_to_its_last_byte(tmp_path, spare, files):
    one, two = framing.records(entry(1).frame), framing.records(entry(2).frame)
    log = SegmentLog(tmp_path, GAME, roll_bytes=len(framing.header(GAME)) + len(one) + framing.MARK_BYTES + len(two) + spare)
    log.append([entry(1)])
    log.append([entry(2)])
    assert len(list(tmp_path.glob("*.seg"))) == files


def test_a_batch_larger_than_a_file_goes_into_one(tmp_path):
    log = SegmentLog(tmp_path, GAME, roll_bytes=1)
    log.append([entry(1), entry(2), entry(3)])
    log.append([])
    assert [path.name for path in tmp_path.iterdir()] == ["000001.seg"]


def test_other_files_of_the_folder_are_left_alone(tmp_path):
    entries = filled(tmp_path, 2)
    for name in ("notes.seg", "000009.txt", "000009.seg.part", "00001-old.seg", "000001x.seg", "segments"):
        (tmp_path / name).write_text("something else")
    assert all_frames(tmp_path) == [one.frame for one in entries]


def test_an_index_without_the_file_counts_as_the_newest_too(tmp_path):
    for created_ms in (3, 4, 5, 6):
        log = SegmentLog(tmp_path, GAME, created_ms=created_ms)
        log.append([entry(created_ms)])
        log.close()
    (tmp_path / "000004.seg").unlink()
    (tmp_path / "000003.seg").unlink()
    log = SegmentLog(tmp_path, GAME, created_ms=7)
    assert (log.games, log.created_ms, SegmentLog(tmp_path / "new", GAME).created_ms) == (3, 5, 0)
    log.append([entry(7)])
    assert (tmp_path / "000004.seg").exists()
    assert log.created_ms == 7


def test_a_closed_file_of_another_size_or_with_games_of_a_file_before_it_is_refused(tmp_path):
    filled(tmp_path, 3, roll_bytes=1)
    first, second = tmp_path / "000001.seg", tmp_path / "000002.idx"
    size = first.stat().st_size
    first.write_bytes(first.read_bytes() + b"x")
    with pytest.raises(SegmentError, match=rf"000001\.seg does not fit its index 000001\.idx: {size + 1} bytes in place of {size}"):
        SegmentLog(tmp_path, GAME)
    os.truncate(first, size)
    write_index(tmp_path, msgspec.structs.replace(read_index(tmp_path, 1), segment=2))
    (tmp_path / "000002.seg").write_bytes(first.read_bytes())
    with pytest.raises(SegmentError, match=r"000002\.seg does not fit its index .*games that are in files before it, too"):
        SegmentLog(tmp_path, GAME)
    write_index(tmp_path, msgspec.structs.replace(read_index(tmp_path, 2), pages={0: b"noise"}))
    with pytest.raises(SegmentError, match=r"000002\.seg .*its game numbers do not unpack"):
        SegmentLog(tmp_path, GAME)
    assert second.exists()


def test_a_file_without_games_is_gone_on_with_and_not_closed(tmp_path):
    (tmp_path / "000001.seg").write_bytes(framing.header(GAME, 5))
    log = SegmentLog(tmp_path, GAME, roll_bytes=1, created_ms=5)
    log.append([entry(1)])
    assert [path.name for path in tmp_path.iterdir()] == ["000001.seg"]


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
    os.truncate(path, path.stat().st_size - framing.MARK_BYTES - lost)
    assert all_frames(tmp_path) == [one.frame for one in entries[:2]]
    said = capsys.readouterr().out
    assert "segment_tail_cut" in said
    assert "000001.seg" in said
    log = SegmentLog(tmp_path, GAME)
    log.append([entries[2]])
    assert log.games == 3


@pytest.mark.parametrize("tail", [bytes(100), bytes(80) + framing.records(b"whole", b"records")])
def test_a_tail_is_cut_off_when_the_log_is_opened_whatever_lies_in_it(tmp_path, tail):
    entries = filled(tmp_path, 2)
    path = tmp_path / "000001.seg"
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    with structlog.testing.capture_logs() as lines:
        assert all_frames(tmp_path) == [one.frame for one in entries]
    assert path.stat().st_size == size
    assert [(line["event"], line["offset"], line["bytes_dropped"]) for line in lines] == [("segment_tail_cut", size, len(tail))]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of segments that are synced, in order."""
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: names.append(Path(os.readlink(f"/proc/self/fd/{file}")).name))
    return names


@pytest.mark.parametrize(("cut", "files"), [(0, []), (framing.MARK_BYTES, ["000001.seg"])])
def test_opening_syncs_games_that_no_mark_says_were_synced(tmp_path, synced, cut, files):
    filled(tmp_path, 2)
    path = tmp_path / "000001.seg"
    size = path.stat().st_size
    os.truncate(path, size - cut)
    synced.clear()
    assert SegmentLog(tmp_path, GAME).games == 2
    assert [name for name in synced if name.endswith(".seg")] == files
    assert path.stat().st_size == size, "and says so"


def test_opening_syncs_an_older_file_which_says_nothing(tmp_path, synced):
    (tmp_path / "000001.seg").write_bytes((OLD / "000001.seg").read_bytes())
    SegmentLog(tmp_path, GAME)
    assert [name for name in synced if name.endswith(".seg")] == ["000001.seg"]


def test_a_file_that_another_began_is_appended_to_once_its_name_is_on_disk(tmp_path, synced):
    filled(tmp_path, 1)
    log = SegmentLog(tmp_path, GAME)
    synced.clear()
    log.append([entry(7)])
    log.close()
    assert synced == ["000001.seg", tmp_path.name, "000001.seg"]


def test_others_may_read_a_file_and_not_write_it(tmp_path):
    before = os.umask(0)
    try:
        filled(tmp_path, 1)
    finally:
        os.umask(before)
    assert (tmp_path / "000001.seg").stat().st_mode & 0o777 == 0o644


def test_what_a_file_that_could_not_be_begun_left_behind_is_written_over(tmp_path):
    log = SegmentLog(tmp_path, GAME)
    (tmp_path / "000001.seg").write_bytes(bytes(10_000))
    log.append([entry(1)])
    log.close()
    assert all_frames(tmp_path) == [entry(1).frame]
    assert (tmp_path / "000001.seg").stat().st_size < 1_000


def test_header_cut_short_is_a_half_written_tail(tmp_path):
    entries = filled(tmp_path, 2)
    (tmp_path / "000002.seg").write_bytes(framing.header(GAME)[:5])
    with structlog.testing.capture_logs() as lines:
        assert all_frames(tmp_path) == [one.frame for one in entries]
    assert [(line["event"], line["offset"], line["bytes_dropped"]) for line in lines] == [("segment_tail_cut", 0, 5)]
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
    second = start + len(framing.records(entries[0].frame)) + framing.MARK_BYTES
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
    with pytest.raises(SegmentError, match=r"000001\.seg does not fit its index 000001\.idx"):
        SegmentLog(tmp_path, GAME)
    (tmp_path / "000001.idx").unlink()
    with pytest.raises(SegmentError, match=r"000001\.seg at offset"):
        SegmentLog(tmp_path, GAME)


def test_missing_segment_is_named(tmp_path):
    filled(tmp_path, 6, roll_bytes=len(entry(1).frame) * 2)
    (tmp_path / "000002.seg").unlink()
    (tmp_path / "000002.idx").unlink()
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
        patch.setattr(segments, "write_all", write_some)
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
        patch.setattr(segments, "write_all", refuse)
        with pytest.raises(StoreError):
            log.append([entry(2)])
    assert not (tmp_path / "000002.seg").exists()
    log.append([entry(2)])
    assert log.games == 2


def test_folder_that_cannot_be_used_is_a_store_error(tmp_path):
    (tmp_path / "segments").write_text("a file")
    with pytest.raises(StoreError, match="cannot be opened"):
        SegmentLog(tmp_path / "segments", GAME)


def test_damage_in_the_newest_batch_is_no_tail_once_it_was_synced(tmp_path):
    filled(tmp_path, 2)
    path = tmp_path / "000001.seg"
    flip(path, path.stat().st_size - framing.MARK_BYTES - 5)
    with pytest.raises(SegmentError, match="checksum does not match"):
        SegmentLog(tmp_path, GAME)


def test_a_mark_the_disk_does_not_take_costs_nothing_but_the_mark(tmp_path, monkeypatch):
    log = SegmentLog(tmp_path, GAME)
    log.append([entry(1)])
    write = write_all

    def take_no_marks(file: int, data: bytes) -> None:
        if len(data) == framing.MARK_BYTES:
            write(file, data[:7])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(segments, "write_all", take_no_marks)
        log.append([entry(2)])
        log.append([entry(3)])
    log.close()
    assert all_frames(tmp_path) == [entry(uid).frame for uid in (1, 2, 3)]


def test_a_log_of_older_files_gets_indexes_and_goes_on_in_a_new_file(tmp_path):
    for path in OLD.glob("*.seg"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    log = SegmentLog(tmp_path, GAME)
    assert (log.games, log.samples, log.created_ms) == (8, sum(entry(uid).samples for uid in range(1, 9)), 0)
    assert [path.name for path in sorted(tmp_path.glob("*.idx"))] == ["000001.idx", "000002.idx"]
    log.append([entry(9)])
    log.close()
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"00000{n}.{kind}" for n in (1, 2, 3) for kind in ("idx", "seg")] + [
        "000004.seg"
    ]
    assert all_games(tmp_path) == [event_of(uid) for uid in (3, 1, 2, 5, 4, 7, 6, 8, 9)]


def test_damage_before_a_whole_record_of_an_older_file_is_no_tail_and_the_rest_of_one_is(tmp_path):
    path = tmp_path / "000001.seg"
    whole = (OLD / "000001.seg").read_bytes()
    path.write_bytes(whole)
    flip(path, 200)
    with pytest.raises(SegmentError, match="records follow"):
        SegmentLog(tmp_path, GAME)
    path.write_bytes(whole[:-3])
    assert all_games(tmp_path) == [event_of(uid) for uid in (3, 1)]


def test_opening_reads_indexes_and_the_newest_file_only(tmp_path, monkeypatch):
    filled(tmp_path, 6, roll_bytes=1)
    read = []
    monkeypatch.setattr(Path, "read_bytes", lambda path, real=Path.read_bytes: read.append(path.name) or real(path))
    log = SegmentLog(tmp_path, GAME)
    assert [name for name in read if name.endswith(".seg")] == ["000006.seg"]
    assert (log.games, 6 in log, 7 in log) == (6, True, False)


def test_closed_files_may_be_moved_away_and_are_missed_only_by_who_reads_them(tmp_path):
    entries = filled(tmp_path, 6, roll_bytes=1)
    for number in (1, 2, 3):
        (tmp_path / f"00000{number}.seg").unlink()
    log = SegmentLog(tmp_path, GAME)
    assert (log.games, log.samples, 1 in log) == (6, sum(one.samples for one in entries), True)
    with pytest.raises(ValueError, match="once"):
        log.append([entry(1)])
    newest = sum(one.samples for one in entries[3:])
    assert list(log.tail(newest)) == [one.frame for one in entries[3:]]
    with pytest.raises(StoreError, match=r"000003\.seg was moved away.*put it back.*max_window"):
        list(log.tail(newest + 1))
    log.append([entry(7)])
    assert log.games == 7


def test_a_closed_file_changed_behind_its_index_is_named_when_it_is_read(tmp_path):
    filled(tmp_path, 3, roll_bytes=1)
    flip(tmp_path / "000001.seg", 60)
    log = SegmentLog(tmp_path, GAME)
    with pytest.raises(SegmentError, match=r"000001\.seg does not fit its index 000001\.idx: another SHA-256"):
        list(log.tail(1 << 40))


@pytest.mark.parametrize(("place", "said"), [(0, "damaged"), (50, "damaged"), (-1, "damaged")])
def test_a_damaged_index_is_named_and_made_again_once_it_is_removed(tmp_path, place, said):
    filled(tmp_path, 3, roll_bytes=1)
    path = tmp_path / "000002.idx"
    whole = path.read_bytes()
    flip(path, place)
    with pytest.raises(SegmentError, match=rf"000002\.idx is {said}; remove it where 000002\.seg is here"):
        SegmentLog(tmp_path, GAME)
    path.unlink()
    assert SegmentLog(tmp_path, GAME).games == 3
    assert path.read_bytes() == whole


def test_indexes_of_another_file_or_game_are_refused(tmp_path):
    filled(tmp_path, 4, roll_bytes=1)
    with pytest.raises(SegmentError, match=r"'tic_tac_toe'.*'connect_four'"):
        SegmentLog(tmp_path, "connect_four")
    second = (tmp_path / "000002.idx").read_bytes()
    (tmp_path / "000002.idx").write_bytes((tmp_path / "000001.idx").read_bytes())
    with pytest.raises(SegmentError, match="is the index of segment 1"):
        SegmentLog(tmp_path, GAME)
    (tmp_path / "000002.idx").write_bytes(second)
    (tmp_path / "000003.seg").write_bytes((tmp_path / "000001.seg").read_bytes())
    (tmp_path / "000003.idx").unlink()
    with pytest.raises(SegmentError, match=r"000003\.seg at offset \d+: game 1 is there twice"):
        SegmentLog(tmp_path, GAME)


def test_each_life_of_a_run_writes_files_of_its_own(tmp_path):
    for created_ms in (1_700_000_000_000, 1_800_000_000_000):
        log = SegmentLog(tmp_path, GAME, created_ms=created_ms)
        log.append([entry(log.games + 1), entry(log.games + 2)])
        assert log.created_ms == created_ms
        log.close()
    assert SegmentLog(tmp_path, GAME).created_ms == 1_800_000_000_000
    assert [read_index(tmp_path, number) is not None for number in (1, 2)] == [True, False]
    assert read_index(tmp_path, 1).created_ms == 1_700_000_000_000


def test_opening_tells_what_it_does(tmp_path):
    filled(tmp_path, 3, roll_bytes=1)
    (tmp_path / "000001.idx").unlink()
    told: list[str] = []
    SegmentLog(tmp_path, GAME, progress=told.append)
    assert told == ["file 1 of 3", "the games of 000001.seg", "file 2 of 3", "file 3 of 3", "the games of 000003.seg"]
