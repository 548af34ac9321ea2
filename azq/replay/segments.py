"""The append-only log of a run's finished games: the replay buffer's durable form, one game number once.

A game counts as stored when `append` has returned; only then may its sample event be acknowledged.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from azq import logs
from azq.errors import IllegalActionError, SegmentError, StoreError, WireError
from azq.replay import disk, framing
from azq.replay.samples import count_samples
from azq.replay.uids import UidSet
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent

ROLL_BYTES = 64 * 1024 * 1024

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One finished game on its way into the log."""

    uid: int
    samples: int  # that it gives
    frame: bytes  # of its `SampleEvent`


@dataclass(slots=True)
class _Segment:
    path: Path
    start: int  # offset of the first record
    end: int  # offset behind the last whole record
    samples: array[int] = field(default_factory=lambda: array("I"))  # of each record, in order


class SegmentLog:
    """Files `000001.seg`, `000002.seg`, ... of one folder, opened for appending.

    Opening checks every record and asks `count` for the samples of each, as its `LogEntry` had them.
    A half-written tail of the last file is cut back to the last whole record and logged.
    Raises `SegmentError` naming file, offset and remedy for damage anywhere else, `StoreError` when the folder cannot be used.
    """

    def __init__(
        self, directory: Path, game: str, *, roll_bytes: int = ROLL_BYTES, count: Callable[[SampleEvent], int] = count_samples
    ) -> None:
        self._directory = directory
        self._game = game
        self._roll_bytes = roll_bytes
        self._count = count
        self._uids = UidSet()
        self._segments: list[_Segment] = []
        self._samples = 0
        self._file = -1
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._open_all()
        except OSError as error:
            raise StoreError(f"segments in {directory} cannot be opened: {error.strerror}; check the folder and its permissions") from error

    @property
    def games(self) -> int:
        """Games in the log."""
        return len(self._uids)

    @property
    def samples(self) -> int:
        """Samples in the log."""
        return self._samples

    @property
    def uids(self) -> UidSet:
        """Numbers of the games in the log; not to be changed."""
        return self._uids

    def __contains__(self, uid: int) -> bool:
        return uid in self._uids

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Stores games and returns when they are on disk.

        Raises `StoreError` when the disk does not take them: nothing of the call is then in the log. Raises `ValueError` for a game number
        that is in the log already.
        """
        if not entries:
            return
        numbers = [entry.uid for entry in entries]
        if len(set(numbers)) != len(numbers) or any(uid in self._uids for uid in numbers):
            raise ValueError("a game number may be stored once; drop duplicates before append")
        data = framing.records(entry.frame for entry in entries)
        try:
            self._write(data)
        except OSError as error:
            raise StoreError(
                f"segments in {self._directory} do not take {len(data)} bytes: {error.strerror}; "
                "free disk space there; the games wait in the sample stream"
            ) from error
        segment = self._segments[-1]
        segment.end += len(data)
        for entry in entries:
            self._note(segment, entry.uid, entry.samples)

    def tail(self, samples: int) -> Iterator[bytes]:
        """Frames of the newest games that together hold at least `samples` samples (all games if there are fewer), oldest first."""
        index, record = self._start_of_tail(samples)
        for segment in self._segments[index:]:
            data = segment.path.read_bytes()
            for number, frame in enumerate(framing.frames(data, segment.start, segment.end)):
                if number >= record:
                    yield frame
            record = 0

    def close(self) -> None:
        """Closes the open file; the log may be opened again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _start_of_tail(self, samples: int) -> tuple[int, int]:
        for index in range(len(self._segments) - 1, -1, -1):
            counts = self._segments[index].samples
            for record in range(len(counts) - 1, -1, -1):
                samples -= counts[record]
                if samples <= 0:
                    return index, record
        return 0, 0

    def _write(self, data: bytes) -> None:
        if not self._segments or (self._segments[-1].samples and self._segments[-1].end + len(data) > self._roll_bytes):
            self._start_segment()
        segment = self._segments[-1]
        if self._file < 0:
            self._file = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            os.ftruncate(self._file, segment.end)
        try:
            disk.write_all(self._file, data)
            os.fsync(self._file)
        except OSError:
            # Closed whatever happens: the next append cuts the file again before it writes.
            try:
                os.ftruncate(self._file, segment.end)
                os.fsync(self._file)
            finally:
                self.close()
            raise

    def _start_segment(self) -> None:
        self.close()
        path = self._directory / f"{len(self._segments) + 1:06d}.seg"
        head = framing.header(self._game)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            disk.write_all(file, head)
            os.fsync(file)
            disk.sync_folder(self._directory)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        self._file = file
        self._segments.append(_Segment(path, len(head), len(head)))

    def _open_all(self) -> None:
        paths = sorted(self._directory.glob("*.seg"))
        for number, path in enumerate(paths, start=1):
            if path.name != f"{number:06d}.seg":
                raise SegmentError(f"{self._directory}: {number:06d}.seg is missing before {path.name}; restore it from a copy")
            self._open_one(path, is_last=number == len(paths))

    def _open_one(self, path: Path, *, is_last: bool) -> None:
        data = path.read_bytes()
        head = framing.header(self._game)
        if is_last and len(data) < len(head) and head.startswith(data):
            log.warning("segment_tail_cut", file=str(path), offset=0, bytes_dropped=len(data), reason="header is cut short")
            path.unlink()
            return
        start = framing.check_header(data, self._game, str(path))
        parsed = framing.parse(data, start)
        if parsed.damage and (parsed.more or not is_last):
            raise SegmentError(
                f"{path} at offset {parsed.end}: {parsed.damage}, and records follow; restore the file from a copy, "
                f"or cut it there (truncate -s {parsed.end}) and give up the games behind it"
            )
        segment = _Segment(path, start, parsed.end)
        self._segments.append(segment)
        self._index(segment, data)
        if parsed.damage:
            disk.cut(path, parsed.end)
            dropped = len(data) - parsed.end
            log.warning("segment_tail_cut", file=str(path), offset=parsed.end, bytes_dropped=dropped, reason=parsed.damage)

    def _index(self, segment: _Segment, data: bytes) -> None:
        offset = segment.start
        for frame in framing.frames(data, segment.start, segment.end):
            try:
                event = decode(frame, SampleEvent)
                samples = self._count(event)
            except (WireError, IllegalActionError) as error:
                raise SegmentError(f"{segment.path} at offset {offset}: {error}; use the azq that wrote it") from error
            if event.record.uid in self._uids:
                raise SegmentError(
                    f"{segment.path} at offset {offset}: game {event.record.uid} is there twice; restore the file from a copy"
                )
            self._note(segment, event.record.uid, samples)
            offset += len(framing.record(frame))

    def _note(self, segment: _Segment, uid: int, samples: int) -> None:
        self._uids.add(uid)
        segment.samples.append(samples)
        self._samples += samples
