"""The bytes of a segment file: a header, then records of length, checksum and frame. No I/O.

header   magic (8), schema u16, length of the name u16, name of the game with its parameters (UTF-8)
record   length of the frame u32, CRC-32 of the frame u32, frame of a `SampleEvent`
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from azq.errors import SegmentError
from azq.wire.codec import MAX_FRAME_BYTES
from azq.wire.messages import READABLE, SCHEMA

MAGIC = b"AZQSEG1\n"
LONGEST_HEADER = 12 + 0xFFFF
_HEADER = struct.Struct("<8sHH")
_RECORD = struct.Struct("<II")
_TAG = b"\xabSampleEvent"  # every frame carries it just behind its first bytes: a landmark for finding records behind damage
_TAG_OFFSETS = (3, 9)  # array, schema, since schema 2 a checksum of six bytes, array of five

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Parsed:
    """Where the whole records of a segment end, and what stands behind them."""

    end: int  # offset behind the last whole record
    damage: str  # why the record at `end` is not whole; empty when the segment ends there
    more: bool  # whole records follow the damage, so it is no half-written tail


def header(game: str) -> bytes:
    """The header of a segment of `game`."""
    name = game.encode()
    return _HEADER.pack(MAGIC, SCHEMA, len(name)) + name


def record(frame: bytes) -> bytes:
    """The record of a frame."""
    return records([frame])


def records(frames: Iterable[bytes]) -> bytes:
    """The records of frames, one behind the other; each frame is copied once."""
    return b"".join(part for frame in frames for part in (_RECORD.pack(len(frame), zlib.crc32(frame)), frame))


def check_header(data: Buffer, game: str, place: str) -> int:
    """The header's length; raises `SegmentError` naming `place` when it is not that of `game` in this schema."""
    length, name = read_header(data, place)
    if name != game:
        raise SegmentError(f"{place} at offset 0: holds games of {name!r}, the run plays {game!r}; restore the run's own segments")
    return length


def read_header(data: Buffer, place: str) -> tuple[int, str]:
    """The header's length and the name of the game; raises `SegmentError` naming `place` when it is none in this schema."""
    if len(data) < _HEADER.size:
        raise SegmentError(f"{place} at offset 0: {len(data)} bytes hold no segment header; restore the file from a copy")
    magic, schema, length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise SegmentError(f"{place} at offset 0: not a segment file; move it out of the segments folder")
    if schema not in READABLE:
        raise SegmentError(f"{place} at offset 0: written with schema {schema}, this azq reads {SCHEMA}; use the azq that wrote it")
    name = bytes(data[_HEADER.size : _HEADER.size + length]).decode("utf-8", "replace")
    return _HEADER.size + int(length), name


def read_record(file: BinaryIO) -> bytes | None:
    """The frame of the record where the file stands; None where no whole one follows: the end, or a half-written tail."""
    head = file.read(_RECORD.size)
    if len(head) < _RECORD.size:
        return None
    length, checksum = _RECORD.unpack(head)
    frame = file.read(length) if 0 < length <= MAX_FRAME_BYTES else b""
    return frame if len(frame) == length and zlib.crc32(frame) == checksum else None


def frames(data: Buffer, start: int, end: int) -> Iterator[bytes]:
    """The frames of whole records between two offsets, unchecked: `parse` has checked them."""
    view = memoryview(data)
    while start < end:
        length, _ = _RECORD.unpack_from(view, start)
        start += _RECORD.size
        yield bytes(view[start : start + length])
        start += length


def parse(data: Buffer, start: int) -> Parsed:
    """Checks the records from `start` on: lengths and checksums."""
    offset = start
    while offset < len(data):
        damage = _damage_at(data, offset)
        if damage:
            return Parsed(offset, damage, _record_follows(data, offset))
        offset += _RECORD.size + _RECORD.unpack_from(data, offset)[0]
    return Parsed(offset, "", False)


def _damage_at(data: Buffer, offset: int) -> str:
    rest = len(data) - offset - _RECORD.size
    if rest < 0:
        return "record header is cut short"
    length, checksum = _RECORD.unpack_from(data, offset)
    if not 0 < length <= MAX_FRAME_BYTES:
        return f"record length {length} is impossible"
    if length > rest:
        return f"record of {length} bytes is cut short after {rest}"
    body = offset + _RECORD.size
    if zlib.crc32(memoryview(data)[body : body + length]) != checksum:
        return "checksum does not match"
    return ""


def _record_follows(data: Buffer, offset: int) -> bool:
    rest = bytes(memoryview(data)[offset + 1 :])
    place = rest.find(_TAG)
    while place >= 0:
        candidates = [place - offset - _RECORD.size for offset in _TAG_OFFSETS]
        if any(candidate >= 0 and not _damage_at(rest, candidate) for candidate in candidates):
            return True
        place = rest.find(_TAG, place + 1)
    return False
