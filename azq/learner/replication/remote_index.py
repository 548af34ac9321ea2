"""A run's games and checkpoints in a store, by the names of its objects, and the records from which a lost control plane is restored.

runs/<run>.<created_ms>/segments/000001.seg/<extent>      its games, as far as they were written
                        segments/000001.idx/<extent>      once the segment is closed and all of it is there
                        checkpoints/<step>.ckpt/<extent>
                        claims/<writer>
                        purged.json                       whose games count no more
                        record                            its settings and goals
                        weights/<version>.<published_ms>  the events of its newest weights
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from azq.config import StoreConfig
from azq.errors import ConfigError, NotFound, SegmentError, StoreError
from azq.replay import framing
from azq.replay.index import SUFFIX
from azq.store import open_prefix
from azq.store.extents import Extent, ExtentSpan, is_whole, layout, matching, read_spans
from azq.store.objects import ObjectPrefix
from azq.store.signing import SignedPrefix
from azq.wire.codec import decode, encode
from azq.wire.messages import RunRecord, WeightEvent

SEGMENTS, CHECKPOINTS = "segments", "checkpoints"
RUNS, RECORD, WEIGHTS = "runs", "record", "weights"
_LIFE = re.compile(r"([a-z0-9_-]+)\.([0-9]{1,15})")
KEEP_EVENTS = 3  # the newest; the weights themselves all stay
Files = Mapping[str, Sequence[Extent]]


def folder_of(record: RunRecord) -> str:
    """Where a run's files are in a store; a later run of the same name has others."""
    return f"runs/{record.run}.{record.created_ms}"


def segment_file(number: int) -> str:
    return f"{SEGMENTS}/{number:06d}.seg"


def index_file(number: int) -> str:
    return f"{SEGMENTS}/{number:06d}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    number: int
    spans: tuple[ExtentSpan, ...]  # of its file
    index: tuple[ExtentSpan, ...]  # of its index; empty while it is not closed


def remote_log(files: Files) -> list[RemoteSegment]:
    """The segments in order; all but the last are closed.

    Writers grow along a log. What an earlier one has behind a later one's is of a learner that had lost its place.
    """
    segments: list[RemoteSegment] = []
    writer = 0
    while True:
        number = len(segments) + 1
        spans, index = layout(files.get(segment_file(number), ())), layout(files.get(index_file(number), ()))
        writers = [span.extent.writer for span in spans] or [0]
        if not (is_whole(index) and index[-1].extent.writer >= max(writers)):
            index = []
        newest = max(writers + [span.extent.writer for span in index])
        if not (spans or index) or newest < writer:
            return segments
        writer = newest
        segments.append(RemoteSegment(number, tuple(spans), tuple(index)))
        if not index:
            return segments


def remote_checkpoints(files: Files) -> list[tuple[str, list[ExtentSpan]]]:
    """The whole checkpoints by file name, oldest first."""
    there = {file.removeprefix(f"{CHECKPOINTS}/"): layout(extents) for file, extents in files.items() if file.startswith(CHECKPOINTS)}
    return sorted((name, spans) for name, spans in there.items() if is_whole(spans))


def writers_of(log: Sequence[RemoteSegment], checkpoints: Sequence[tuple[str, Sequence[ExtentSpan]]]) -> frozenset[int]:
    """The writers of these objects."""
    spans = [span for segment in log for span in (*segment.spans, *segment.index)] + [span for _, of in checkpoints for span in of]
    return frozenset(span.extent.writer for span in spans)


def holds(prefix: ObjectPrefix, data: bytes, spans: Sequence[ExtentSpan]) -> int | None:
    """How many of the first spans a segment's bytes hold by their names; None where the store has another one, or more of it.

    A store whose writer died may end with a part of a record: that is not more. Raises `StoreError`.
    """
    count = matching(data, spans)
    if count == len(spans):
        return count
    remote = data[: spans[count].extent.start] + read_spans(prefix, spans[count:])
    try:
        whole = framing.parse(remote, framing.read_header(remote, "").size).end
    except SegmentError:  # not even its header is whole
        whole = 0
    return count if data.startswith(remote[:whole]) else None


def is_same(data: bytes, spans: Sequence[ExtentSpan]) -> bool:
    """Whether these are all bytes of a finished file, as names tell."""
    return len(data) == spans[-1].end and matching(data, spans) == len(spans)


def start_of_tail(samples: Sequence[int], wanted: float) -> int:
    """The first of several segments, by their samples, from which on there are `wanted`."""
    first = len(samples)
    while first and wanted > 0:
        first -= 1
        wanted -= samples[first]
    return first


def write_event(prefix: ObjectPrefix, event: WeightEvent) -> None:
    """Keeps the event of new weights, and of older ones the newest. Raises `StoreError`."""
    prefix.write(f"{WEIGHTS}/{event.version:010d}.{event.published_ms:015d}", encode(event))
    for name in sorted(prefix.names(WEIGHTS))[:-KEEP_EVENTS]:
        prefix.remove(name)


def read_events(prefix: ObjectPrefix) -> list[WeightEvent]:
    """The events that are kept, newest first. Raises `StoreError`, `WireError`."""
    frames = map(prefix.read, sorted(prefix.names(WEIGHTS), reverse=True))
    return [decode(frame, WeightEvent) for frame in frames if frame is not None]


def open_run_prefix(settings: StoreConfig, record: RunRecord, key: Callable[[], bytes]) -> SignedPrefix | None:
    """The prefix of a run, whose objects `key` signs; None where the store keeps weights alone. Raises `ConfigError`, `StoreError`."""
    folder = folder_of(record)
    prefix = open_prefix(settings, folder)
    return SignedPrefix(prefix, folder, key()) if prefix else None


def find_run(settings: StoreConfig, run: str, key: bytes) -> SignedPrefix:
    """The prefix of the last run of a name that a store keeps.

    Raises `ConfigError` for a store of weights alone, `NotFound` where it has no such run, `StoreError`.
    """
    base = open_prefix(settings, RUNS)
    if base is None:
        raise ConfigError(f"store.url {settings.url} with store.keep {settings.keep} keeps no games; name the store that has the run")
    lives = [(life[1], int(life[2])) for life in map(_LIFE.fullmatch, base.folders()) if life]
    if run not in {name for name, _ in lives}:
        there = ", ".join(sorted({name for name, _ in lives})) or "none"
        raise NotFound(f"no run {run!r} in {settings.url}; there are: {there}")
    newest = RunRecord(run, b"", {}, "", max(created for name, created in lives if name == run))
    prefix = open_run_prefix(settings, newest, lambda: key)
    assert prefix is not None, "its base is there"
    return prefix


def read_record(prefix: SignedPrefix) -> RunRecord:
    """The record of a run whose prefix this is. Raises `StoreError`, `WireError`."""
    frame = prefix.read(RECORD)
    if frame is None:
        prefix.names()  # names one that is not signed
        raise StoreError(f"{prefix.folder} in the store holds no {RECORD}: its learner was of an older azq; start it once with this one")
    record = decode(frame, RunRecord)
    if folder_of(record) != prefix.folder:
        raise StoreError(f"{prefix.folder}/{RECORD} in the store is of {folder_of(record)}; remove that folder, or put its own record back")
    return record
