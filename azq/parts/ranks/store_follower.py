"""Games of a run on a host that does not see the learner's folder: out of the run's store."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from azq.errors import StoreError
from azq.files import make_folders, publish_file
from azq.learner.replication.remote_index import SEGMENTS, RemoteSegment, remote_log
from azq.process.breaker import CircuitBreaker
from azq.replay.index import path_of, read_index, segment_path
from azq.replay.readers import SegmentFollower
from azq.store.extents import Extent, list_extents, read_spans
from azq.store.objects import ObjectPrefix

EVERY_S = 2.0  # between two listings of the store


class StoreFollower:
    """Writes what is new on a prefix to a folder, and gives it as a `SegmentFollower` does; what was read is deleted.

    A store that is away is waited for. `read` raises `StoreError` where games that were read are not in the log any more, since another
    learner went on from before them: a rank that starts again reads it right.
    """

    def __init__(
        self,
        prefix: ObjectPrefix,
        directory: Path,
        samples: int,
        count: Callable[[bytes], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        make_folders(directory)
        self._prefix = prefix
        self._directory = directory
        self._samples = samples
        self._clock = clock
        self._follower = SegmentFollower(directory, samples, count)
        self._store = CircuitBreaker(StoreError, ("store_away", "store_back"), clock=clock)
        self._first = 0  # segment that is read; 0: none yet
        self._here: dict[int, list[Extent]] = {}  # extents that are in the folder, of segments that are not closed there
        self._due_s = 0.0
        self._moved = ""

    def read(self, most: int) -> Iterator[bytes]:
        """Up to `most` frames that were not read before, oldest first."""
        if self._clock() >= self._due_s:
            self._store.attempt(self._pull)
            self._due_s = self._clock() + EVERY_S
        if self._moved:
            raise StoreError(self._moved)
        yield from self._follower.read(most)
        for number in range(max(1, self._first), self._follower.number):
            segment_path(self._directory, number).unlink(missing_ok=True)
            self._first = number + 1

    def _pull(self) -> None:
        try:
            remote = remote_log(list_extents(self._prefix).files)
            if not self._first and remote:
                self._first = self._start(remote)
            for segment in remote[self._first - 1 :] if self._first else ():
                self._bring(segment)
        except OSError as error:
            raise StoreError(f"{self._directory} does not take games from the store: {error.strerror}; free space there") from error

    def _start(self, remote: list[RemoteSegment]) -> int:
        """The segment where the newest samples begin; indexes tell."""
        closed, missing = [segment for segment in remote if segment.index], self._samples
        while closed and missing > 0:
            segment = closed.pop()
            publish_file(path_of(self._directory, segment.number), read_spans(self._prefix, segment.index))
            index = read_index(self._directory, segment.number)
            missing -= index.samples if index else 0
        return min(len(closed) + 1, len(remote))

    def _bring(self, segment: RemoteSegment) -> None:
        path = segment_path(self._directory, segment.number)
        if segment.number not in self._here and path.exists():  # closed
            return
        here = self._here.setdefault(segment.number, [])
        whole = [span.extent for span in segment.spans if span.end == span.extent.end]
        same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(here, whole, strict=False))))
        if rest := segment.spans[same:]:
            self._replace(path, rest[0].extent.start, read_spans(self._prefix, rest))
        self._here[segment.number] = whole
        if segment.index:
            del self._here[segment.number]
            publish_file(path_of(self._directory, segment.number), read_spans(self._prefix, segment.index))

    def _replace(self, path: Path, start: int, data: bytes) -> None:
        """The bytes of a file from `start` on."""
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(start)
            before = file.read()
            if before != data[: len(before)]:
                self._moved = (
                    f"{SEGMENTS}/{path.name} in the store goes on otherwise than it did: another learner took over; start this rank again"
                )
                return
            file.seek(start)
            file.write(data)
            file.truncate()
