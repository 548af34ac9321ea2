"""How files that grow are kept as objects: pieces of bytes, whose names say all there is to know of them. Pure.

    <file>/<writer>.<start>.<end>.<of>.<sha256>

`writer` numbers the processes that ever wrote here: what a later one wrote from `start` on takes the place of all that earlier ones have
there. Before it writes, it claims what it goes on from: `claims/<writer>` names the writers whose pieces that are, and no others before
it count from then on. So one that was superseded and does not know it yet can neither take anything away nor put itself between.
`of` is the size of a file that is finished, 0 where it may still grow. Nothing is ever written over: what is there by its name is there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

FAN = 8  # pieces of like size before they are written as one
CLAIMS = "claims"
# Only these forms count: a name in a store is text of whoever may write there.
_FILE = r"segments/[0-9]{6,9}\.(?:seg|idx)|checkpoints/[0-9]{12}\.ckpt"
_CLAIM = re.compile(rf"{CLAIMS}/[0-9]{{10}}")
_OTHER = re.compile(r"record|purged\.json|weights/[0-9]{10}\.[0-9]{15}")
_NAME = re.compile(
    rf"(?P<file>{_FILE})/(?P<writer>[0-9]{{10}})\.(?P<start>[0-9]{{1,15}})\.(?P<end>[0-9]{{1,15}})\.(?P<of>[0-9]{{1,15}})\.(?P<sha256>[0-9a-f]{{64}})"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `end` of a file."""

    file: str
    writer: int
    start: int
    end: int
    of: int
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.file}/{self.writer:010d}.{self.start}.{self.end}.{self.of}.{self.sha256}"

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PieceSpan:
    """Bytes of a file, up to `end`, that a piece gives from its own start on."""

    piece: Piece
    end: int


def piece_of(name: str) -> Piece | None:
    """What an object's name says; None for one that is no piece."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    start, end = int(found["start"]), int(found["end"])
    piece = Piece(found["file"], int(found["writer"]), start, end, int(found["of"]), found["sha256"])
    return piece if start < end and piece.name == name else None


def is_kept_name(name: str) -> bool:
    """Whether a learner gives objects such names."""
    return piece_of(name) is not None or any(form.fullmatch(name) for form in (_CLAIM, _OTHER))


@dataclass(frozen=True, slots=True)
class WriterClaim:
    """What a writer goes on from: pieces of these writers before it, of no others."""

    writer: int = 0
    goes_on_from: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return f"{CLAIMS}/{self.writer:010d}"

    def counts(self, piece: Piece) -> bool:
        return piece.writer >= self.writer or piece.writer in self.goes_on_from


def by_file(names: Iterable[str], claim: WriterClaim) -> dict[str, list[Piece]]:
    """The pieces that count among objects, by file."""
    files: dict[str, list[Piece]] = {}
    for piece in map(piece_of, names):
        if piece is not None and claim.counts(piece):
            files.setdefault(piece.file, []).append(piece)
    return files


def writers_in(names: Iterable[str]) -> tuple[int, int]:
    """The highest number of a writer that left anything, and of one that left a claim; 0 for none."""
    listed = list(names)
    claims = [int(name.rpartition("/")[2]) for name in listed if _CLAIM.fullmatch(name)]
    pieces = [piece.writer for piece in map(piece_of, listed) if piece is not None]
    return max(claims + pieces, default=0), max(claims, default=0)


def layout(pieces: Iterable[Piece]) -> list[PieceSpan]:
    """The bytes of one file from its beginning, as far as pieces reach without a gap; a later writer's count from where they start."""
    spans: list[PieceSpan] = []
    size, writer = 0, -1
    for piece in sorted(pieces, key=lambda piece: (piece.writer, piece.end, -piece.start)):
        if piece.start > size or (piece.writer == writer and piece.end <= size):
            continue
        spans = [PieceSpan(span.piece, min(span.end, piece.start)) for span in spans if span.piece.start < piece.start]
        spans.append(PieceSpan(piece, piece.end))
        size, writer = piece.end, piece.writer
    return spans


def is_whole(spans: Sequence[PieceSpan]) -> bool:
    """True for all of a finished file."""
    return bool(spans) and spans[-1].end == spans[-1].piece.of


def matching(data: bytes, spans: Sequence[PieceSpan]) -> int:
    """How many of the first spans a file's bytes hold, as names tell; of one that gives only a part of its piece they do not."""
    for count, span in enumerate(spans):
        piece = span.piece
        if span.end != piece.end or hashlib.sha256(data[piece.start : piece.end]).hexdigest() != piece.sha256:
            return count
    return len(spans)


def next_pieces(kept: Sequence[Piece], end: int, most: int) -> Iterator[tuple[int, int]]:
    """What to write so that a file's first `end` bytes are kept, of which the pieces `kept` are, in order; at most `most` bytes each.

    Small pieces are written again as a larger one once `FAN` of them stand behind each other: a file that grows by a little at a time is
    kept in few pieces, and none of its bytes is written more often than the logarithm of its size.
    """
    covered = kept[-1].end if kept else 0
    while covered < end:
        stop = min(end, covered + most)
        start = _joined(kept, covered, stop, most) if covered == (kept[-1].end if kept else 0) else covered
        yield start, stop
        covered = stop


def _joined(kept: Sequence[Piece], start: int, end: int, most: int) -> int:
    left = len(kept)
    while True:
        first = left
        while first and end - kept[first - 1].start <= most and _level(kept[first - 1].size) <= _level(end - start):
            first -= 1
        if left - first < FAN - 1:
            return start
        left, start = first, kept[first].start


def _level(size: int) -> int:
    return (size.bit_length() - 1) // (FAN.bit_length() - 1)
