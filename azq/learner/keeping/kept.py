"""What a store holds of a run besides its weights, from the names of its objects. Pure but for `holds`.

runs/<run>.<created_ms>/segments/000001.seg/<piece>   its games, as far as they were written
                        segments/000001.idx/<piece>   once the segment is closed and all of it is there
                        checkpoints/<step>.ckpt/<piece>
                        claims/<writer>
                        purged.json                   whose games count no more
                        record, weights/              of its control plane, see `control`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from azq.errors import SegmentError
from azq.replay import framing
from azq.replay.index import SUFFIX
from azq.store.pieces import Piece, PieceSpan, is_whole, layout, matching
from azq.store.shelf import Shelf, read_spans
from azq.wire.messages import RunRecord

SEGMENTS, CHECKPOINTS = "segments", "checkpoints"
Files = Mapping[str, Sequence[Piece]]


def folder_of(record: RunRecord) -> str:
    """Where a run's files are in a store; a later run of the same name has others."""
    return f"runs/{record.run}.{record.created_ms}"


def segment_file(number: int) -> str:
    return f"{SEGMENTS}/{number:06d}.seg"


def index_file(number: int) -> str:
    return f"{SEGMENTS}/{number:06d}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class KeptSegment:
    number: int
    spans: tuple[PieceSpan, ...]  # of its file
    index: tuple[PieceSpan, ...]  # of its index; empty while it is not closed


def kept_log(files: Files) -> list[KeptSegment]:
    """The segments in order; all but the last are closed.

    Writers grow along a log. What an earlier one has behind a later one's is of a learner that had lost its place.
    """
    kept: list[KeptSegment] = []
    writer = 0
    while True:
        number = len(kept) + 1
        spans, index = layout(files.get(segment_file(number), ())), layout(files.get(index_file(number), ()))
        writers = [span.piece.writer for span in spans] or [0]
        if not (is_whole(index) and index[-1].piece.writer >= max(writers)):
            index = []
        newest = max(writers + [span.piece.writer for span in index])
        if not (spans or index) or newest < writer:
            return kept
        writer = newest
        kept.append(KeptSegment(number, tuple(spans), tuple(index)))
        if not index:
            return kept


def kept_checkpoints(files: Files) -> list[tuple[str, list[PieceSpan]]]:
    """The whole checkpoints by file name, oldest first."""
    found = ((file.removeprefix(f"{CHECKPOINTS}/"), layout(pieces)) for file, pieces in files.items() if file.startswith(f"{CHECKPOINTS}/"))
    return sorted((name, spans) for name, spans in found if is_whole(spans))


def writers_of(log: Sequence[KeptSegment], checkpoints: Sequence[tuple[str, Sequence[PieceSpan]]]) -> frozenset[int]:
    """Who wrote what is kept."""
    spans = [span for segment in log for span in (*segment.spans, *segment.index)] + [span for _, of in checkpoints for span in of]
    return frozenset(span.piece.writer for span in spans)


def holds(shelf: Shelf, data: bytes, spans: Sequence[PieceSpan]) -> int | None:
    """How many of the first spans a segment's bytes hold by their names; None where the store has another one, or more of it.

    A store whose writer died may end with a part of a record: that is not more. Raises `StoreError`.
    """
    count = matching(data, spans)
    if count == len(spans):
        return count
    kept = data[: spans[count].piece.start] + read_spans(shelf, spans[count:])
    try:
        whole = framing.parse(kept, framing.read_header(kept, "").size).end
    except SegmentError:  # not even its header is whole
        whole = 0
    return count if data.startswith(kept[:whole]) else None


def is_same(data: bytes, spans: Sequence[PieceSpan]) -> bool:
    """Whether these are all bytes of a finished file, as names tell."""
    return len(data) == spans[-1].end and matching(data, spans) == len(spans)


def start_of_tail(samples: Sequence[int], wanted: float) -> int:
    """The first of several segments, by their samples, from which on there are `wanted`."""
    first = len(samples)
    while first and wanted > 0:
        first -= 1
        wanted -= samples[first]
    return first
