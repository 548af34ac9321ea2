"""The bytes of a segment file, one by one: what is whole, what is damage, what was on disk."""

from __future__ import annotations

import zlib
from io import BytesIO

import pytest

from azq.errors import SegmentError
from azq.replay import framing
from azq.replay.framing import Header, Parsed, header, mark, records

HEAD = header("ab", 7)  # 26 bytes
UNMARKED = b"AZQSEG1\n\1\0\2\0ab"
TAG = b"\xabSampleEvent"


def crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")


def test_the_bytes_of_a_header_a_record_and_a_mark():
    said = b"AZQSEG2\n\3\0\2\0\7\0\0\0\0\0\0\0ab"
    assert header("ab", 7) == said + crc(said)
    assert header("ab") == header("ab", 0)
    assert records(b"xyz") == b"\3\0\0\0" + crc(b"xyz") + b"xyz"
    assert records(b"xyz", b"") == records(b"xyz") + records(b"")
    assert mark(258) == b"SYNC" + crc(b"\2\1\0\0\0\0\0\0") + b"\2\1\0\0\0\0\0\0"
    assert len(mark(0)) == framing.MARK_BYTES
    assert len(header("x" * 0xFFFF)) == framing.LONGEST_HEADER


def test_headers_of_both_kinds_are_read_back():
    assert framing.read_header(HEAD + b"behind", "x.seg") == Header("ab", 7, True, 26)
    assert framing.read_header(UNMARKED + b"behind", "x.seg") == Header("ab", 0, False, 14)
    assert framing.check_header(HEAD, "ab", "x.seg") == 26
    assert framing.read_header(b"AZQSEG1\n\2\0\0\0", "x.seg") == Header("", 0, False, 12)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "x.seg at offset 0: 0 bytes hold no segment header"),
        (HEAD[:19], "19 bytes hold no segment header"),
        (UNMARKED[:11], "11 bytes hold no segment header"),
        (bytes(20), "not a segment file"),
        (b"AZQSEG3\n" + HEAD[8:], "not a segment file"),
        (b"AZQSEG2\n\4" + HEAD[9:], "written with schema 4, this azq reads 3"),
        (HEAD[:-1], "checksum does not match"),
        (HEAD[:-1] + b"\0", "checksum does not match"),
        (HEAD[:12] + b"\6" + HEAD[13:], "checksum does not match"),
    ],
)
def test_what_is_no_header_is_said(data, said):
    with pytest.raises(SegmentError, match=said):
        framing.read_header(data, "x.seg")


def test_a_segment_of_another_game_is_refused():
    with pytest.raises(SegmentError, match="holds games of 'ab', the run plays 'abc'"):
        framing.check_header(HEAD, "abc", "x.seg")


def test_a_file_is_begun_until_its_header_is_whole():
    assert all(framing.is_begun(HEAD[:size], "ab") for size in range(26))
    assert framing.is_begun(bytes(26), "ab")
    assert not framing.is_begun(HEAD, "ab")
    assert not framing.is_begun(bytes(27), "ab"), "more than a header was written"


def test_records_are_read_from_a_file_over_marks_until_one_is_not_whole():
    file = BytesIO(mark(0) + records(b"one") + mark(1) + mark(2) + records(b"two") + records(b"three")[:-1])
    assert [framing.read_record(file) for _ in range(3)] == [b"one", b"two", None]


@pytest.mark.parametrize("data", [b"", records(b""), records(b"x")[:7], records(b"x")[:-1] + b"y", mark(0)[:-1], mark(0)[:-1] + b"\1"])
def test_what_is_no_whole_record_of_a_file(data):
    assert framing.read_record(BytesIO(data + records(b"behind") * bool(data[-1:] == b"\1"))) is None


def test_the_longest_frame_is_whole_and_a_longer_one_is_not(monkeypatch):
    monkeypatch.setattr(framing, "MAX_FRAME_BYTES", 10)
    assert framing.read_record(BytesIO(records(bytes(10)))) == bytes(10)
    assert framing.read_record(BytesIO(records(bytes(11)))) is None
    assert framing.parse(records(bytes(10)), 0) == Parsed(18, "")
    assert framing.parse(records(bytes(11)), 0) == Parsed(0, "record length 11 is impossible")


DATA = HEAD + records(b"one") + mark(37) + records(b"four")  # records at 26 and 53, the end at 65


def test_frames_are_placed_between_two_offsets():
    assert list(framing.placed_frames(DATA, 26, 65)) == [(26, b"one"), (53, b"four")]
    assert list(framing.placed_frames(DATA + records(b"x"), 26, 53)) == [(26, b"one")]
    assert list(framing.placed_frames(DATA, 65, 65)) == []
    assert [list(framing.frames(DATA, 26, 65, skip=skip)) for skip in (0, 1, 2)] == [[b"one", b"four"], [b"four"], []]
    assert list(framing.frames(DATA, 26, 65)) == [b"one", b"four"]


@pytest.mark.parametrize(
    ("behind", "end", "damage"),
    [
        (b"", 65, ""),
        (mark(65), 81, ""),
        (records(b"x"), 74, ""),
        (b"1234567", 65, "record header is cut short"),
        (bytes(8), 65, "record length 0 is impossible"),
        (records(b"xyz")[:8], 65, "record of 3 bytes is cut short after 0"),
        (records(b"xyz")[:-1], 65, "record of 3 bytes is cut short after 2"),
        (records(b"xyz")[:-1] + b"y", 65, "checksum does not match"),
        (mark(65)[:-1], 65, "record of 8 bytes is cut short after 7"),
        (b"SYNC" + bytes(12) + records(b"x"), 65, "checksum does not match"),
    ],
)
def test_parsing_ends_where_something_is_not_whole(behind, end, damage):
    assert framing.parse(DATA + behind, 26) == Parsed(end, damage)


def test_a_mark_ends_where_it_ends_and_says_where_it_stands():
    assert framing.is_marked(mark(0), 16)
    assert framing.is_marked(DATA, 53)
    assert not any(framing.is_marked(DATA, offset) for offset in range(66) if offset != 53)
    assert not framing.is_marked(bytes(10) + mark(0), 26), "a mark of another place"


@pytest.mark.parametrize(
    ("behind", "synced"),
    [
        (b"", False),
        (b"torn" + records(b"whole"), False),
        (b"t" + mark(66), True),
        (mark(65), False),  # not behind it
        (b"torn" + mark(69)[:-1], False),
        (b"torn" + mark(70), False),
        (b"SYNC, SYNC" + mark(75), True),
    ],
)
def test_damage_was_on_disk_where_a_mark_stands_behind_it(behind, synced):
    assert framing.was_synced(DATA + behind, 65, marked=True) is synced


FRAME = b"\x96\2\xc6\1\2\3\4\5\6" + TAG + b"rest"  # the tag stands behind nine bytes
OLD_FRAME = b"\x95\1\x95" + TAG + b"rest"  # or three


@pytest.mark.parametrize(
    ("behind", "synced"),
    [
        (b"", False),
        (b"t" + records(FRAME), True),
        (b"torn" + records(OLD_FRAME), True),
        (records(FRAME), False),  # not behind it
        (b"torn" + records(FRAME)[:-1], False),
        (b"torn" + FRAME, False),
        (TAG + TAG + records(FRAME), True),
        (b"torn" + records(b"nothing of ours"), False),
        (b"torn" + mark(69), False),
    ],
)
def test_damage_of_an_older_file_was_on_disk_where_a_whole_record_stands_behind_it(behind, synced):
    assert framing.was_synced(DATA + behind, 65, marked=False) is synced
