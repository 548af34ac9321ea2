"""A rank's own copy of a run's newest games, where its host does not see the learner's folder: read from the store as they are kept."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from azq import logs
from azq.errors import StoreError
from azq.files import make_folders, publish_file
from azq.learner.keeping.kept import SEGMENTS, KeptSegment, kept_log, start_of_tail
from azq.process.breaker import CircuitBreaker
from azq.replay.index import path_of, read_index, segment_path
from azq.replay.readers import SegmentFollower
from azq.store.pieces import Piece
from azq.store.shelf import Shelf, look, read_spans

EVERY_S = 2.0

log = logs.get(__name__)


class Puller:
    """Writes what is new on a shelf to a folder of its own, and gives it as a `SegmentFollower` does; what was read is deleted.

    A store that is away is waited for. `read` raises `StoreError` where games that were read are not in the log any more, since another
    learner went on from before them: whoever starts again is right again.
    """

    def __init__(
        self, shelf: Shelf, directory: Path, samples: int, count: Callable[[bytes], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        make_folders(directory)
        self._shelf = shelf
        self._directory = directory
        self._samples = samples
        self._clock = clock
        self._follower = SegmentFollower(directory, samples, count)
        self._store = CircuitBreaker(StoreError, ("store_away", "store_back"), clock=clock)
        self._first = 0  # segment that is read; 0: none yet
        self._here: dict[int, list[Piece]] = {}  # pieces that are in the folder, of segments that are not closed there
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
            kept = kept_log(look(self._shelf).files)
            if not self._first and kept:
                self._first = self._start(kept)
            for segment in kept[self._first - 1 :] if self._first else ():
                self._bring(segment)
        except OSError as error:
            raise StoreError(f"{self._directory} does not take games from the store: {error.strerror}; free space there") from error

    def _start(self, kept: list[KeptSegment]) -> int:
        """The segment where the newest samples begin; indexes tell."""
        closed = [segment for segment in kept if segment.index]
        samples: list[int] = []
        for segment in reversed(closed):
            publish_file(path_of(self._directory, segment.number), read_spans(self._shelf, segment.index))
            index = read_index(self._directory, segment.number)
            samples.insert(0, index.samples if index else 0)
            if sum(samples) >= self._samples:
                break
        first = len(closed) - len(samples) + start_of_tail(samples, self._samples)
        return min(first + 1, len(kept))

    def _bring(self, segment: KeptSegment) -> None:
        path = segment_path(self._directory, segment.number)
        closed = segment.number not in self._here and path.exists()
        if closed:
            return
        here = self._here.setdefault(segment.number, [])
        whole = [span.piece for span in segment.spans if span.end == span.piece.end]
        same = 0
        while same < min(len(here), len(whole)) and here[same] == whole[same]:
            same += 1
        rest = segment.spans[same:]
        if rest:
            self._replace(path, rest[0].piece.start, read_spans(self._shelf, rest))
        self._here[segment.number] = whole
        if segment.index:
            del self._here[segment.number]
            publish_file(path_of(self._directory, segment.number), read_spans(self._shelf, segment.index))

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
            file.flush()
            os.fsync(file.fileno())
