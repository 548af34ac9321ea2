"""The bytes of a segment file: a header, then records and marks. No I/O.

header   magic (8), schema u16, length of the name u16, created_ms u64 of the run (0: not known), name of the game with its parameters
         (UTF-8), CRC-32 of all that u32
record   length of the frame u32, CRC-32 of the frame u32, frame of a `SampleEvent`
mark     "SYNC", CRC-32 of what follows u32, the mark's own offset u64: all before it was on disk when the mark was written

A batch of records is written, fsynced, and a mark is written behind it, which the next fsync takes along: no batch is synced twice.
Damage with a mark somewhere behind it is a loss of what was on disk, and an error. Damage without one is the tail of a write that was
never synced, hence never acknowledged, and it is cut off. After a power cut the last mark may be missing behind a batch that was synced and
acknowledged. But that batch is whole, since it was synced, and whole records are kept, marked or not. So only a disk that loses what was
synced, up to the file's end, goes unnoticed here; the ledger, which counts what was acknowledged, detects that.

Older logs have a header without time and checksum, and no marks. There damage before a whole record is no tail.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from azq.errors import SegmentError
from azq.wire.codec import MAX_FRAME_BYTES
from azq.wire.messages import READABLE, SCHEMA

MAGIC = b"AZQSEG2\n"
UNMARKED_MAGIC = b"AZQSEG1\n"
LONGEST_HEADER = 24 + 0xFFFF
MARK_BYTES = 16
_MARK_SIGN = b"SYNC"  # as a length it is more than a frame may have
_MARK_LENGTH = int.from_bytes(_MARK_SIGN, "little")
_HEADER = struct.Struct("<8sHHQ")
_UNMARKED_HEADER = struct.Struct("<8sHH")
_RECORD = struct.Struct("<II")
_OFFSET = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_TAG = b"\xabSampleEvent"  # every frame carries it just behind its first bytes: a landmark for finding records behind damage
_TAG_OFFSETS = (3, 9)  # array, schema, since schema 2 a checksum of six bytes, array of five

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a segment."""

    game: str
    created_ms: int  # of the run that wrote it; 0: not known
    marked: bool  # False: an older segment, which holds no marks
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Parsed:
    """The end of a segment's whole records, and the damage behind them."""

    end: int  # offset behind the last whole record or mark
    damage: str  # why what stands at `end` is not whole; empty when the segment ends there


def header(game: str, created_ms: int = 0) -> bytes:
    name = game.encode()
    data = _HEADER.pack(MAGIC, SCHEMA, len(name), created_ms) + name
    return data + _CHECKSUM.pack(zlib.crc32(data))


def records(*frames: bytes) -> bytes:
    """The records of frames, one behind the other; each frame is copied once."""
    return b"".join(part for frame in frames for part in (_RECORD.pack(len(frame), zlib.crc32(frame)), frame))


def mark(offset: int) -> bytes:
    """The mark that stands at an offset."""
    body = _OFFSET.pack(offset)
    return _MARK_SIGN + _CHECKSUM.pack(zlib.crc32(body)) + body


def check_header(data: Buffer, game: str, place: str) -> int:
    """The header's length; raises `SegmentError` naming `place` when it is not that of `game` in this schema."""
    head = read_header(data, place)
    if head.game != game:
        raise SegmentError(f"{place} at offset 0: holds games of {head.game!r}, the run plays {game!r}; restore the run's own segments")
    return head.size


def read_header(data: Buffer, place: str) -> Header:
    """The header; raises `SegmentError` naming `place` when it is none in this schema."""
    magic = bytes(data[: len(MAGIC)])
    shape = _UNMARKED_HEADER if magic == UNMARKED_MAGIC else _HEADER
    if len(data) < shape.size:
        raise SegmentError(f"{place} at offset 0: {len(data)} bytes hold no segment header; restore the file from a copy")
    if magic not in (MAGIC, UNMARKED_MAGIC):
        raise SegmentError(f"{place} at offset 0: not a segment file; move it out of the segments folder")
    _, schema, length, *rest = shape.unpack_from(data)
    if schema not in READABLE:
        raise SegmentError(f"{place} at offset 0: written with schema {schema}, this azq reads {SCHEMA}; use the azq that wrote it")
    end = shape.size + int(length)
    name = bytes(data[shape.size : end]).decode("utf-8", "replace")
    if not rest:
        return Header(name, 0, False, end)
    if bytes(data[end : end + _CHECKSUM.size]) != _CHECKSUM.pack(zlib.crc32(data[:end])):
        raise SegmentError(f"{place} at offset 0: the header's checksum does not match; restore the file from a copy")
    (created_ms,) = rest
    return Header(name, created_ms, True, end + _CHECKSUM.size)


def is_begun(data: bytes, game: str) -> bool:
    """True for a file that was begun, and whose header never reached the disk whole: it holds no game."""
    if len(data) > len(header(game)):
        return False
    try:
        read_header(data, "")
    except SegmentError:
        return True
    return False


def read_record(file: BinaryIO) -> bytes | None:
    """The frame of the next record behind where the file stands; None where no whole one follows: the end, or a half-written tail."""
    while len(head := file.read(_RECORD.size)) == _RECORD.size:
        length, checksum = _RECORD.unpack(head)
        size = _OFFSET.size if length == _MARK_LENGTH else length
        body = file.read(size) if size <= MAX_FRAME_BYTES else b""
        if len(body) != size or not size or zlib.crc32(body) != checksum:
            return None
        if length != _MARK_LENGTH:
            return body
    return None


def frames(data: Buffer, start: int, end: int, *, skip: int = 0) -> Iterator[bytes]:
    """The frames of whole records between two offsets, but for the first `skip`; unchecked: `parse` has checked them."""
    return (frame for _, frame in islice(placed_frames(data, start, end), skip, None))


def placed_frames(data: Buffer, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The same, each with the offset of its record."""
    view = memoryview(data)
    while start < end:
        length, _ = _RECORD.unpack_from(view, start)
        if length == _MARK_LENGTH:
            start += MARK_BYTES
            continue
        yield start, bytes(view[start + _RECORD.size : start + _RECORD.size + length])
        start += _RECORD.size + length


def parse(data: Buffer, start: int) -> Parsed:
    """Checks records and marks from `start` on: lengths and checksums."""
    offset = start
    while offset < len(data):
        damage = _damage_at(data, offset)
        if damage:
            return Parsed(offset, damage)
        offset += _size_at(data, offset)
    return Parsed(offset, "")


def is_marked(data: bytes, offset: int) -> bool:
    """True when a mark ends at an offset."""
    return offset >= MARK_BYTES and data[offset - MARK_BYTES : offset] == mark(offset - MARK_BYTES)


def was_synced(data: bytes, offset: int, *, marked: bool) -> bool:
    """Whether damaged bytes at an offset had been synced: a mark follows, or in an unmarked segment a whole record."""
    return _mark_follows(data, offset) if marked else _record_follows(data, offset)


def _size_at(data: Buffer, offset: int) -> int:
    length: int = _RECORD.unpack_from(data, offset)[0]
    return MARK_BYTES if length == _MARK_LENGTH else _RECORD.size + length


def _damage_at(data: Buffer, offset: int) -> str:
    rest = len(data) - offset - _RECORD.size
    if rest < 0:
        return "record header is cut short"
    length, checksum = _RECORD.unpack_from(data, offset)
    if length == _MARK_LENGTH:
        length = _OFFSET.size
    if not 0 < length <= MAX_FRAME_BYTES:
        return f"record length {length} is impossible"
    if length > rest:
        return f"record of {length} bytes is cut short after {rest}"
    body = offset + _RECORD.size
    if zlib.crc32(memoryview(data)[body : body + length]) != checksum:
        return "checksum does not match"
    return ""


def _mark_follows(data: bytes, offset: int) -> bool:
    return any(data[place : place + MARK_BYTES] == mark(place) for place in _places(_MARK_SIGN, data, offset + 1))


def _record_follows(data: bytes, offset: int) -> bool:
    tags = _places(_TAG, data, offset)
    starts = (tag - before - _RECORD.size for tag in tags for before in _TAG_OFFSETS)
    return any(start > offset and not _damage_at(data, start) for start in starts)


def _places(sign: bytes, data: bytes, start: int) -> Iterator[int]:
    return (match.start() for match in re.compile(re.escape(sign)).finditer(data, start))
