"""What a log needs to know of a closed segment without reading it: `000001.idx` beside `000001.seg`, written once when it is closed.

magic (8), SHA-256 of what follows (32), `SegmentIndex` in msgpack

The segment itself may then be moved away; only who wants its games misses it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from azq.errors import SegmentError, StoreError
from azq.files import publish_file
from azq.replay.uids import packed_has

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
    pages: dict[int, bytes]  # game numbers, as `azq.replay.uids.pack` has them

    @property
    def samples(self) -> int:
        """Samples in the segment."""
        return sum(self.blocks)

    def __contains__(self, uid: int) -> bool:
        return packed_has(self.pages, uid)

    def check(self, data: bytes, place: Path) -> bytes:
        """The segment's bytes; raises `SegmentError` where they are not those that were indexed."""
        if hashlib.sha256(data).digest() != self.sha256:
            raise misfit(place, "another SHA-256")
        return data


def path_of(directory: Path, segment: int) -> Path:
    """Where the index of a segment stands."""
    return directory / f"{segment:06d}{SUFFIX}"


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
