"""Games from a run's store: a folder is brought up to it, of all on a new host and of nothing on the one that wrote it; a rank whose host
does not see the learner's folder follows it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from azq import logs
from azq.clock import now_ms
from azq.config import LearnerConfig
from azq.errors import SegmentError, StoreError
from azq.files import below, make_folders, publish_file, sync_folder
from azq.learner.replication.remote_index import (
    CHECKPOINTS,
    SEGMENTS,
    Files,
    RemoteSegment,
    holds,
    index_file,
    is_same,
    remote_checkpoints,
    remote_log,
    segment_file,
    start_of_tail,
)
from azq.process.breaker import CircuitBreaker
from azq.replay.index import path_of, read_index, segment_path
from azq.replay.readers import SegmentFollower
from azq.replay.window import PURGED
from azq.store.extents import Extent, ExtentSpan, list_extents, read_spans
from azq.store.objects import ObjectPrefix

EVERY_S = 2.0  # between two looks at the store by who follows it
NOTE = ".kept"  # in a run's folder: the learner's place that wrote there last

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Downloaded:
    segments: int = 0  # files that were written
    indexes: int = 0
    checkpoints: int = 0
    bytes: int = 0


class Downloader:
    """One fetch into a run's folder, of the segments only those that hold the newest `samples`; older ones stay in the store.

    A file here that is another than the store's is of a learner that had lost its place, or of a folder that was left behind: it is put
    aside, and what it held and nobody else has was never acknowledged. Raises `StoreError`, `SegmentError`.
    """

    def __init__(self, prefix: ObjectPrefix, directory: Path, samples: float, progress: Callable[[str], None] = lambda what: None) -> None:
        self._prefix = prefix
        self._directory = directory
        self._samples = samples
        self._progress = progress
        self._aside = directory / SEGMENTS / f"aside-{now_ms()}"
        self._done = Downloaded()

    def run(self) -> Downloaded:
        files = list_extents(self._prefix).files
        try:
            make_folders(self._directory / SEGMENTS)
            self._fetch_log(remote_log(files))
            self._fetch_checkpoint(files)
            self._fetch_purges()
        except OSError as error:
            raise StoreError(f"{self._directory} does not take what the store holds: {error.strerror}; free space there") from error
        if self._done != Downloaded():
            log.warning("run_fetched", **asdict(self._done))
        return self._done

    def _fetch_log(self, remote: list[RemoteSegment]) -> None:
        closed = [segment for segment in remote if segment.index]
        known = [self._bring_index(segment) for segment in closed]
        folder = self._directory / SEGMENTS
        samples = [index.samples for segment in closed if (index := read_index(folder, segment.number)) is not None]
        first = start_of_tail(samples, self._samples)
        for place, segment in enumerate(closed):
            path = segment_path(folder, segment.number)
            if path.exists() and not known[place]:
                self._put_aside(path)
            if place >= first and not path.exists():
                self._write_segment(segment)
        is_ahead = all(known)
        if remote and not remote[-1].index:
            is_ahead = self._bring_open(remote[-1])
        if not is_ahead:
            self._put_aside_behind(len(remote))

    def _bring_index(self, segment: RemoteSegment) -> bool:
        """Whether the folder's index is the store's; it is afterwards."""
        path = path_of(self._directory / SEGMENTS, segment.number)
        here = path.read_bytes() if path.exists() else b""
        if is_same(here, segment.index):
            return True
        if path.exists():
            self._put_aside(path)
        self._write(path, read_spans(self._prefix, segment.index))
        self._count(indexes=1)
        return False

    def _bring_open(self, segment: RemoteSegment) -> bool:
        """Whether the folder's newest file holds what the store does, and perhaps more; else it is the store's afterwards."""
        path = segment_path(self._directory / SEGMENTS, segment.number)
        if path.exists():
            if holds(self._prefix, path.read_bytes(), segment.spans) is not None:
                return True
            self._put_aside(path)
        if (index := path_of(path.parent, segment.number)).exists():
            self._put_aside(index)
        self._write_segment(segment)
        return False

    def _write_segment(self, segment: RemoteSegment) -> None:
        path = segment_path(self._directory / SEGMENTS, segment.number)
        data = read_spans(self._prefix, segment.spans)
        if (index := read_index(path.parent, segment.number)) is not None and segment.index:
            try:
                data = index.check(data[: index.size], path)
            except SegmentError:
                raise StoreError(
                    f"{segment_file(segment.number)} in the store does not fit {index_file(segment.number)}; restore its objects, "
                    "or lower learner.max_window until training needs none of its games"
                ) from None
        self._write(path, data)
        self._count(segments=1)

    def _fetch_checkpoint(self, files: Files) -> None:
        """The newest whole one, unless the folder has a later one."""
        folder = self._directory / CHECKPOINTS
        newest = max((path.name for path in folder.glob("*.ckpt")), default="")
        for name, spans in reversed(remote_checkpoints(files)):
            if name <= newest:
                return
            with contextlib.suppress(StoreError):  # a damaged one is passed over for the one before
                self._write_checkpoint(folder / name, spans)
                return
            log.warning("checkpoint_passed_over", reason=f"{name} in the store is damaged", remedy="the one before it is used")

    def _write_checkpoint(self, path: Path, spans: list[ExtentSpan]) -> None:
        data = read_spans(self._prefix, spans)
        make_folders(path.parent)
        self._write(path, data)
        self._count(checkpoints=1)

    def _fetch_purges(self) -> None:
        """Where the folder knows of none; orders since then are the control plane's to repeat."""
        path = self._directory / SEGMENTS / PURGED
        data = None if path.exists() else self._prefix.read(PURGED)
        if data is not None:
            publish_file(below(self._directory, path), data)

    def _put_aside_behind(self, last: int) -> None:
        """Of the folder's own segments, which follow others than the store's."""
        folder = self._directory / SEGMENTS
        for path in sorted(folder.iterdir()):
            if path.suffix in (".seg", ".idx") and path.stem.isdigit() and int(path.stem) > last:
                self._put_aside(path)

    def _put_aside(self, path: Path) -> None:
        make_folders(self._aside)
        os.replace(path, self._aside / path.name)
        sync_folder(self._aside)
        sync_folder(path.parent)
        log.warning("segment_put_aside", file=str(path), folder=str(self._aside), reason="the store holds another one, of a later learner")

    def _write(self, path: Path, data: bytes) -> None:
        self._progress(f"{path.name} from the store")
        publish_file(below(self._directory, path), data)
        self._count(bytes=len(data))

    def _count(self, **more: int) -> None:
        self._done = Downloaded(**{name: value + more.get(name, 0) for name, value in asdict(self._done).items()})


def wanted_samples(config: LearnerConfig) -> float:
    """How many of a run's newest samples its learner needs on disk."""
    return math.inf if config.lockstep_games else config.max_window


def download_if_possible(downloader: Downloader, directory: Path, token: int) -> None:
    """Fetches, and notes the place of the learner that goes on here.

    A store that is away is done without where this very folder is the one that was written to last. Raises `StoreError` else: another
    host may have gone on from the store.
    """
    note = directory / NOTE
    try:
        downloader.run()
    except StoreError as error:
        with contextlib.suppress(OSError, ValueError):
            if int(note.read_text("ascii")) + 1 == token:
                log.warning("store_away", reason=str(error), remedy="nobody learned elsewhere since: training goes on from this folder")
                _note(note, token)
                return
        raise
    _note(note, token)


def _note(note: Path, token: int) -> None:
    try:
        publish_file(note, str(token).encode())
    except OSError as error:
        raise StoreError(f"{note} cannot be written: {error.strerror}; free space there") from error


class StoreFollower:
    """Writes what is new on a prefix to a folder of its own, and gives it as a `SegmentFollower` does; what was read is deleted.

    A store that is away is waited for. `read` raises `StoreError` where games that were read are not in the log any more, since another
    learner went on from before them: whoever starts again is right again.
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
