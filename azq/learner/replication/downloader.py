"""Games from a run's store: a folder is brought up to it, of all on a new host and of nothing on the one that wrote it."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Callable
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
from azq.replay.index import path_of, read_index, segment_path
from azq.replay.window import PURGED
from azq.store.extents import ExtentSpan, list_extents, read_spans
from azq.store.objects import ObjectPrefix

NOTE = ".kept"  # in a run's folder: the learner's place that wrote there last

log = logs.get(__name__)


class Downloader:
    """One fetch into a run's folder, of the segments only those that hold the newest `samples`; older ones stay in the store.

    A file here that is another than the store's is of a learner that had lost its place, or of a folder that was left behind: it is put
    aside, and what it alone held was never acknowledged. Raises `StoreError`, `SegmentError`.
    """

    def __init__(self, prefix: ObjectPrefix, directory: Path, samples: float, progress: Callable[[str], None] = lambda what: None) -> None:
        self._prefix = prefix
        self._directory = directory
        self._samples = samples
        self._progress = progress
        self._aside = directory / SEGMENTS / f"aside-{now_ms()}"
        self._written: Counter[str] = Counter()  # files by kind, and `bytes`

    def run(self) -> Counter[str]:
        """Counts of the files written: `segments`, `indexes`, `checkpoints`, and their `bytes`."""
        files = list_extents(self._prefix).files
        try:
            make_folders(self._directory / SEGMENTS)
            self._fetch_log(remote_log(files))
            self._fetch_checkpoint(files)
            self._fetch_purges()
        except OSError as error:
            raise StoreError(f"{self._directory} does not take what the store holds: {error.strerror}; free space there") from error
        if self._written:
            log.warning("run_fetched", **self._written)
        return self._written

    def _fetch_log(self, remote: list[RemoteSegment]) -> None:
        closed = [segment for segment in remote if segment.index]
        had_index = [self._bring_index(segment) for segment in closed]
        folder = self._directory / SEGMENTS
        samples = [index.samples for segment in closed if (index := read_index(folder, segment.number)) is not None]
        first = start_of_tail(samples, self._samples)
        for place, segment in enumerate(closed):
            path = segment_path(folder, segment.number)
            if path.exists() and not had_index[place]:
                self._put_aside(path)
            if place >= first and not path.exists():
                self._write_segment(segment)
        is_ahead = all(had_index)
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
        self._write(path, read_spans(self._prefix, segment.index), "indexes")
        return False

    def _bring_open(self, segment: RemoteSegment) -> bool:
        """Whether the folder's newest file has all of the store's bytes; else it is replaced by the store's."""
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
        self._write(path, data, "segments")

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
        self._write(path, data, "checkpoints")

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

    def _write(self, path: Path, data: bytes, kind: str) -> None:
        self._progress(f"{path.name} from the store")
        publish_file(below(self._directory, path), data)
        self._written.update({kind: 1, "bytes": len(data)})


def wanted_samples(config: LearnerConfig) -> float:
    """How many of a run's newest samples its learner needs on disk."""
    return math.inf if config.lockstep_games else config.max_window


def download_if_possible(downloader: Downloader, directory: Path, token: int) -> None:
    """Fetches, and notes the place of the learner that goes on here.

    A store that is away is done without where this very folder is the one that was written to last. Raises `StoreError` else: another
    host may have gone on from the store.
    """
    mark = directory / NOTE
    try:
        downloader.run()
    except StoreError as error:
        with contextlib.suppress(OSError, ValueError):
            if int(mark.read_text("ascii")) + 1 == token:
                log.warning("store_away", reason=str(error), remedy="no other host learned since: training goes on from this folder")
                _write_mark(mark, token)
                return
        raise
    _write_mark(mark, token)


def _write_mark(mark: Path, token: int) -> None:
    try:
        publish_file(mark, str(token).encode())
    except OSError as error:
        raise StoreError(f"{mark} cannot be written: {error.strerror}; free space there") from error
