"""The index of a closed segment, by which a log opens without reading it: `000001.idx` beside `000001.seg`, written once.

magic (8), SHA-256 of what follows (32), `SegmentIndex` in msgpack

The segment itself may then be moved away; only who wants its games misses it. Game numbers are dense from 1: sets of them take a bit each.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from azq.errors import SegmentError, StoreError
from azq.files import publish_file

_PAGE = 1 << 16  # numbers
_PAGE_BYTES = _PAGE // 8


class UidSet:
    """A set of positive integers in pages of bits, so that a stray large number costs one page and a million games 128 KiB."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._count = 0

    def add(self, uid: int) -> bool:
        """Adds a number; False when it was there. Raises `ValueError` below 1."""
        if uid < 1:
            raise ValueError(f"game number {uid} is below 1")
        if uid in self:
            return False
        page, byte, bit = _place(uid)
        self._pages.setdefault(page, bytearray(_PAGE_BYTES))[byte] |= 1 << bit
        self._count += 1
        return True

    def merge(self, pages: Mapping[int, bytes]) -> bool:
        """Adds a packed set; False, and nothing added, where they share a number. Raises `zlib.error` or `OverflowError` for damage."""
        joined, added = {}, 0
        for page, packed in pages.items():
            mine, theirs = int.from_bytes(self._pages.get(page, b""), "little"), int.from_bytes(zlib.decompress(packed), "little")
            if mine & theirs:
                return False
            joined[page] = bytearray((mine | theirs).to_bytes(_PAGE_BYTES, "little"))
            added += theirs.bit_count()
        self._pages.update(joined)
        self._count += added
        return True

    @property
    def highest(self) -> int:
        """The largest number; 0 where there is none."""
        return max((page * _PAGE + int.from_bytes(bits, "little").bit_length() - 1 for page, bits in self._pages.items()), default=0)

    def gaps(self, last: int) -> list[tuple[int, int]]:
        """The numbers from 1 to `last` that are not in the set, as spans (first, last) in ascending order."""
        packed = b"".join(self._pages.get(page, bytes(_PAGE_BYTES)) for page in range(last // _PAGE + 1))
        there = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little").view(np.int8)
        there[0] = 1  # no number: a game's is 1 or more
        steps = np.diff(there[: last + 1], append=np.int8(1))
        return list(zip((np.flatnonzero(steps < 0) + 1).tolist(), np.flatnonzero(steps > 0).tolist(), strict=True))

    def __contains__(self, uid: int) -> bool:
        page, byte, bit = _place(uid)
        return page in self._pages and bool(self._pages[page][byte] >> bit & 1)

    def __len__(self) -> int:
        return self._count


def pack(uids: NDArray[np.uint64]) -> dict[int, bytes]:
    """Numbers as compressed pages of bits, as a segment's index holds them."""
    packed = {}
    pages, places = np.divmod(uids, np.uint64(_PAGE))
    for page in np.unique(pages).tolist():
        bits = np.zeros(_PAGE, np.bool_)
        bits[places[pages == page]] = True
        packed[page] = zlib.compress(np.packbits(bits, bitorder="little").tobytes())
    return packed


def packed_has(pages: Mapping[int, bytes], uid: int) -> bool:
    """True when a packed set has a number; only its page is unpacked."""
    page, byte, bit = _place(uid)
    return page in pages and bool(zlib.decompress(pages[page])[byte] >> bit & 1)


def _place(uid: int) -> tuple[int, int, int]:
    page, bit = divmod(uid, _PAGE)
    return page, bit // 8, bit % 8


SUFFIX = ".idx"
BLOCK_GAMES = 256  # games whose samples are counted together
MAGIC = b"AZQIDX1\n"
_BODY = len(MAGIC) + 32


class SegmentIndex(msgspec.Struct, frozen=True):
    """The games of one closed segment."""

    segment: int  # its number
    game: str
    created_ms: int  # of the run that wrote it; 0: not known
    size: int  # bytes of the file
    sha256: bytes  # of the file
    games: int
    blocks: tuple[int, ...]  # samples of each `BLOCK_GAMES` games, in order
    pages: dict[int, bytes]  # game numbers, as `azq.replay.index.pack` has them

    @property
    def samples(self) -> int:
        return sum(self.blocks)

    def __contains__(self, uid: int) -> bool:
        return packed_has(self.pages, uid)

    def check(self, data: bytes, place: Path) -> bytes:
        """The segment's bytes; raises `SegmentError` where they are not those that were indexed."""
        if hashlib.sha256(data).digest() != self.sha256:
            raise misfit(place, "another SHA-256")
        return data


def path_of(directory: Path, segment: int) -> Path:
    return directory / f"{segment:06d}{SUFFIX}"


def segment_path(directory: Path, segment: int) -> Path:
    return directory / f"{segment:06d}.seg"


def segments_in(directory: Path) -> list[int]:
    """Numbers of the segments that are here, ascending."""
    return sorted(int(path.stem) for path in directory.glob("*.seg") if path.stem.isdigit())


def write_index(directory: Path, index: SegmentIndex) -> None:
    """Makes an index durable; raises `OSError`."""
    body = msgspec.msgpack.encode(index)
    publish_file(path_of(directory, index.segment), MAGIC + hashlib.sha256(body).digest() + body)


def read_index(directory: Path, segment: int) -> SegmentIndex | None:
    """The index of a segment, or None where there is none; raises `SegmentError` for a damaged one, `StoreError` for an unreadable one."""
    path = path_of(directory, segment)
    remedy = f"remove it where {segment:06d}.seg is here, it is made again; else restore it from a copy"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(data[_BODY:]).digest() != data[len(MAGIC) : _BODY]:
        raise SegmentError(f"{path} is damaged; {remedy}")
    try:
        index = msgspec.msgpack.decode(data[_BODY:], type=SegmentIndex)
    except msgspec.DecodeError as error:
        raise SegmentError(f"{path}: {error}; use the azq that wrote it, or {remedy}") from error
    if index.segment != segment:
        raise SegmentError(f"{path} is the index of segment {index.segment}; {remedy}")
    return index


def misfit(segment: Path, what: str) -> SegmentError:
    """The error for a segment that is not the one that was indexed."""
    return SegmentError(f"{segment} does not fit its index {segment.stem}{SUFFIX}: {what}; restore the file from a copy, or move it away")


def moved_away(segment: Path, wanted: str) -> StoreError:
    """The error for a segment of which only the index is here."""
    return StoreError(f"{segment} was moved away, its index alone is here; put it back {wanted}")
