"""Read a segment log that another process writes: no lock, no cut, only whole records.

`SegmentReader` finds games. Closed files say in their index which games they hold; it stays in memory, some hundred bytes a file. Of each
file looked at lately game numbers and offsets stay too, at most `KEPT_INDEXES` of them. A closed file that was moved away is missed only
by who asks for its games. `SegmentFollower` gives each record once, in order, as they come.
"""

from __future__ import annotations

import contextlib
import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from azq.errors import NotFound, StoreError, WireError
from azq.replay import framing
from azq.replay.index import SUFFIX, SegmentIndex, moved_away, read_index, segment_path, segments_in
from azq.wire.codec import decode, uid_of
from azq.wire.messages import SampleEvent

KEPT_INDEXES = 8  # files; 16 bytes a game
_READ_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a game stands in the log; places sort by age."""

    segment: int  # number of the file, from 1
    record: int  # in the file, from 0


@dataclass(slots=True)
class _Index:
    """The whole records of one file, as far as it was read."""

    end: int = 0  # offset behind the last one
    uids: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))


class SegmentReader:
    """The games of one segments folder. Safe to share between threads and beside the process that appends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._indexes: OrderedDict[int, _Index] = OrderedDict()
        self._closed: dict[int, tuple[int, SegmentIndex]] = {}  # with when its file was written, ns
        self._lock = threading.Lock()

    def newest(self, count: int, before: LogPlace | None = None) -> list[tuple[LogPlace, SampleEvent]]:
        """The newest games that stand before a place, newest first. Raises `NotFound` where there is no log, `StoreError`."""
        return list(self._events(self._places(count, before)))

    def last(self, count: int) -> Iterator[SampleEvent]:
        """The newest games, oldest first, each read when it is asked for. Raises as `newest`."""
        return (event for _, event in self._events(self._places(count, None)[::-1]))

    def find(self, uid: int) -> SampleEvent:
        """One game. Raises `NotFound` when it is not in the files where its number is to be expected, `StoreError`."""
        with self._lock:
            for segment in self._candidates(uid):
                index = self._index(segment)
                if uid in index.uids:
                    place = LogPlace(segment, index.uids.index(uid))
                    break
            else:
                raise NotFound(f"no game {uid} in {self._directory}: it is still played, or was never finished")
        return next(event for _, event in self._events([place]))

    def _places(self, count: int, before: LogPlace | None) -> list[LogPlace]:
        places: list[LogPlace] = []
        with self._lock:
            for segment in reversed(self._segments()):
                if before is not None and segment > before.segment:
                    continue
                records = len(self._index(segment).offsets)
                if before is not None and segment == before.segment:
                    records = min(records, before.record)
                places += [LogPlace(segment, record) for record in range(records - 1, max(-1, records - 1 - count + len(places)), -1)]
                if len(places) >= count:
                    break
        return places

    def _candidates(self, uid: int) -> Iterator[int]:
        """The closed file that has the game; else those without an index, which have to be read, newest first."""
        closed = self._closed_ones()
        yield from (segment for segment, index in closed.items() if uid in index)
        yield from (segment for segment in reversed(self._segments()) if segment not in closed)

    def _segments(self) -> list[int]:
        numbers = segments_in(self._directory)
        if not numbers:
            raise NotFound(
                f"no recorded games in {self._directory} on this host: games are on the learner's host; ask there, or share that folder"
            )
        return numbers

    def _closed_ones(self) -> dict[int, SegmentIndex]:
        """The indexes that are there, each read once."""
        paths = [path for path in self._directory.glob(f"*{SUFFIX}") if path.stem.isdigit()]
        written = {int(path.stem): path.stat().st_mtime_ns for path in paths}
        self._closed = {segment: entry for segment, entry in self._closed.items() if written.get(segment) == entry[0]}
        for segment in written.keys() - self._closed.keys():
            if (index := read_index(self._directory, segment)) is not None:
                self._closed[segment] = written[segment], msgspec.structs.replace(index, blocks=())
        return {segment: index for segment, (_, index) in self._closed.items()}

    def _index(self, segment: int) -> _Index:
        """The file's index, with what was appended since; read again where the file became shorter."""
        index = self._indexes.pop(segment, None) or _Index()
        with self._opened(segment) as file:
            if os.fstat(file.fileno()).st_size < index.end:
                index = _Index()
            file.seek(max(index.end, file.tell()))
            place = file.tell()
            while frame := framing.read_record(file):
                index.uids.append(uid_of(frame))
                index.offsets.append(place)
                place = index.end = file.tell()
        self._indexes[segment] = index
        while len(self._indexes) > KEPT_INDEXES:
            self._indexes.popitem(last=False)
        return index

    def _events(self, places: list[LogPlace]) -> Iterator[tuple[LogPlace, SampleEvent]]:
        for segment in dict.fromkeys(place.segment for place in places):
            with self._lock:
                offsets = self._index(segment).offsets
            with self._opened(segment) as file:
                for place in places:
                    if place.segment == segment:
                        yield place, self._event(file, offsets, place)

    def _event(self, file: BinaryIO, offsets: array[int], place: LogPlace) -> SampleEvent:
        try:
            file.seek(offsets[place.record])
            return decode(framing.read_record(file) or b"", SampleEvent)
        except (WireError, IndexError) as error:
            with self._lock:
                self._indexes.pop(place.segment, None)  # the learner cut its file back: read it again next time
            raise StoreError(
                f"{segment_path(self._directory, place.segment)}: record {place.record} is not whole ({error}); ask again"
            ) from error

    def _opened(self, segment: int) -> AbstractContextManager[BinaryIO]:
        return _opened(segment_path(self._directory, segment), "the daemon's user", gone="to read its games")


@contextlib.contextmanager
def _opened(path: Path, user: str, *, gone: str = "") -> Iterator[BinaryIO]:
    """The file, standing at its first record. Read, not mapped: a file that is cut while it is mapped kills who reads it."""
    try:
        with path.open("rb", buffering=_READ_BYTES) as file:
            head = file.read(framing.LONGEST_HEADER)
            file.seek(framing.read_header(head, str(path)).size if head else 0)  # empty: begun just now
            yield file
    except OSError as error:
        if gone and isinstance(error, FileNotFoundError):
            raise moved_away(path, gone) from None
        raise StoreError(f"{path} cannot be read: {error.strerror}; let {user} read the run's folder") from error


class SegmentFollower:
    """Reads the log of a folder from the file where its newest `samples` samples begin; `count` tells how many a frame gives.

    Raises `StoreError` naming a file that cannot be read, `SegmentError` for one that is none.
    """

    def __init__(self, directory: Path, samples: int, count: Callable[[bytes], int]) -> None:
        self._directory = directory
        self._samples = samples
        self._count = count
        self._number = 0  # of the file that is read; 0: none yet
        self._offset = 0

    @property
    def number(self) -> int:
        """Of the file that is read; those before it are not needed any more."""
        return self._number

    def read(self, most: int) -> Iterator[bytes]:
        """Up to `most` frames that were not read before, oldest first."""
        if not self._number:
            self._number = self._first_file()
        while self._number:
            # Checked first: a file that is read to its end before the next one begins may still grow.
            ended = segment_path(self._directory, self._number + 1).exists()
            for frame in self._frames():
                yield frame
                most -= 1
                if not most:
                    return
            if not ended:
                return
            self._number, self._offset = self._number + 1, 0

    def _first_file(self) -> int:
        """The newest file from which on there are enough samples; the oldest one that is still here where there are not."""
        number = newest = max(segments_in(self._directory), default=0)
        missing = self._samples
        while number and missing > 0 and segment_path(self._directory, number).exists():
            missing -= self._samples_in(number)
            number -= 1
        return min(number + 1, newest)

    def _samples_in(self, number: int) -> int:
        if (index := read_index(self._directory, number)) is not None:
            return index.samples
        with self._opened(number) as file:
            return sum(map(self._count, iter(partial(framing.read_record, file), None)))

    def _frames(self) -> Iterator[bytes]:
        with self._opened(self._number) as file:
            self._offset = min(self._offset, os.fstat(file.fileno()).st_size)  # it was cut: the next record begins there
            file.seek(max(file.tell(), self._offset))
            while frame := framing.read_record(file):
                self._offset = file.tell()
                yield frame

    def _opened(self, number: int) -> AbstractContextManager[BinaryIO]:
        return _opened(segment_path(self._directory, number), "this rank's user")
