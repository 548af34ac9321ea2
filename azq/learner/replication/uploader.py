"""Uploads a run's games and checkpoints to its store as they come."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import BinaryIO

from azq import logs
from azq.errors import StateConflict, StoreError
from azq.learner.checkpoint import KEEP, stored
from azq.learner.replication.remote_index import (
    CHECKPOINTS,
    RECORD,
    SEGMENTS,
    RemoteSegment,
    holds,
    index_file,
    is_same,
    remote_checkpoints,
    remote_log,
    segment_file,
    writers_of,
)
from azq.process.breaker import CircuitBreaker
from azq.replay.index import path_of, segment_path
from azq.replay.segments import LogEnd, SegmentLog
from azq.replay.window import PURGED
from azq.store.extents import Extent, WriterClaim, list_extents, next_extents, write_claim
from azq.store.objects import ObjectPrefix
from azq.waiting import meanwhile
from azq.wire.codec import encode
from azq.wire.messages import RunRecord

POLL_S = 0.2
EVERY_S = 2.0  # between two writes of games that come slowly
AT_ONCE_BYTES = 1 << 20  # of games that come fast

log = logs.get(__name__)


@dataclass(eq=False)
class Uploader:
    """A learner's thread: a store that is slow or down delays nothing but acknowledgements.

    Segments go before their indexes, and in order; so what is there is a beginning of the log. Only its own process writes below its
    number `writer`, which grows with every learner of the run.
    """

    prefix: ObjectPrefix
    directory: Path  # of the run
    segments: SegmentLog
    token: int  # of the learner's place
    most_bytes: int  # of one object
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    uploaded: LogEnd = field(default=(0, 0), init=False)  # how far the log is in the store
    record: RunRecord | None = field(default=None, init=False)  # of the run, to be written when it changes

    def __post_init__(self) -> None:
        self._store = CircuitBreaker(StoreError, ("store_away", "store_back"), clock=self.clock)
        self._error: BaseException | None = None
        self._writer = 0  # 0: the store was not listed yet
        self._number, self._extents = 1, list[Extent]()  # the segment that is written, and what of it is there
        self._checkpoints: list[list[Extent]] = []  # whole ones, oldest first
        self._newest = ""  # of them, by name
        self._sending: tuple[str, BinaryIO, list[Extent]] | None = None
        self._uploaded_notes: dict[str, bytes] = {}  # small objects as they were written last
        self._due_s = 0.0
        self._hurried = threading.Event()

    def beside(self) -> AbstractContextManager[None]:
        """Works in a thread for the length of the block."""
        return meanwhile("uploader", self._run)

    def lives(self) -> bool:
        """True; raises the error that ended its thread."""
        if self._error is not None:
            raise self._error
        return True

    @property
    def away(self) -> bool:
        """True from a failure of the store to the next write that works."""
        return self._store.active

    def hurry(self) -> None:
        """Uploads from now on without waiting for larger batches."""
        self._hurried.set()

    def finish(self, longest_s: float) -> None:
        """Uploads the rest, for a bounded time; called after the thread has ended."""
        end = self.clock() + longest_s
        self.hurry()
        while self.clock() < end and not self.away and not self._is_done():
            self.turn()

    def turn(self) -> bool:
        """Uploads what is due, a few objects at most; True where more is due at once."""
        behind = self._behind()
        notes = self._new_notes()
        if not behind and not notes and self._newest == self._newest_here():
            return False
        is_due = self._hurried.is_set() or bool(notes) or behind >= AT_ONCE_BYTES or self.clock() >= self._due_s
        if not is_due:
            return False
        more = self._store.attempt(self._write_some)
        if more is False:
            self._due_s = self.clock() + EVERY_S
        return bool(more)

    def _run(self, ended: threading.Event) -> None:
        try:
            while not ended.is_set():
                if not self.turn():
                    ended.wait(POLL_S)
        except BaseException as error:  # the learner's thread raises it
            self._error = error

    def _behind(self) -> int:
        """Bytes of the newest segment that the store lacks; `AT_ONCE_BYTES` where it lacks older segments."""
        number, end = self.segments.end
        return AT_ONCE_BYTES if (number > self._number or not self._writer) else end - (self._extents[-1].end if self._extents else 0)

    def _is_done(self) -> bool:
        return self._writer > 0 and not self._behind() and not self._new_notes() and self._newest == self._newest_here()

    def _write_some(self) -> bool:
        try:
            if not self._writer:
                self._compare()
            self._write_notes()
            more = self._write_log()
            return self._write_checkpoint() or more
        except OSError as error:
            raise StoreError(f"{self.directory} cannot be read: {error.strerror}; check it and its permissions") from error

    def _new_notes(self) -> dict[str, bytes]:
        """The run's record and purge orders, where they changed."""
        purged = self.directory / SEGMENTS / PURGED
        notes = {RECORD: encode(self.record) if self.record else b"", PURGED: purged.read_bytes() if purged.exists() else b""}
        return {name: data for name, data in notes.items() if data and data != self._uploaded_notes.get(name)}

    def _write_notes(self) -> None:
        for name, data in self._new_notes().items():
            self.prefix.write(name, data)
            self._uploaded_notes[name] = data

    def _compare(self) -> None:
        """Finds how far the store is. Raises `StateConflict` where it holds anything that this folder does not."""
        listing = list_extents(self.prefix)
        files, segments = listing.files, remote_log(listing.files)
        self._number, self._extents = 1, []
        for segment in segments:
            self._adopt(segment)
        whole = remote_checkpoints(files)
        self._checkpoints = [list(files[f"{CHECKPOINTS}/{name}"]) for name, _ in whole]
        self._newest = whole[-1][0] if whole else ""
        writer = max(self.token, listing.newest_writer + 1)
        write_claim(self.prefix, WriterClaim(writer, writers_of(segments, whole)), listing.claim)
        # Only now is it sure that no learner goes on from these: of learners that died over them, or written again as larger ones.
        counted = {span.extent for segment in segments for span in (*segment.spans, *segment.index)}
        counted |= {span.extent for _, spans in whole[-KEEP:] for span in spans}
        for extents in files.values():
            self._drop([extent for extent in extents if extent not in counted], any_writers=True)
        self._writer = writer
        self._save_end()

    def _adopt(self, segment: RemoteSegment) -> None:
        """Goes on behind a segment of the store, or within the last one. Raises `StateConflict` where the folder's is another."""
        folder = self.directory / SEGMENTS
        path = path_of(folder, segment.number) if segment.index else segment_path(folder, segment.number)
        data = path.read_bytes() if path.exists() else b""
        count = (0 if is_same(data, segment.index) else None) if segment.index else holds(self.prefix, data, segment.spans)
        if count is None:
            raise StateConflict(
                f"the store holds another {path.name} than {folder}: a learner of the run went on elsewhere; start this one again"
            )
        self._number = segment.number + bool(segment.index)
        self._extents = [span.extent for span in segment.spans[:count]]

    def _write_log(self) -> bool:
        """Uploads a part of the oldest incomplete segment; True where there is more."""
        newest, end = self.segments.end
        if self._number == newest:
            self._write_extent(segment_path(self.directory / SEGMENTS, newest), segment_file(newest), end)
            return self._behind() >= AT_ONCE_BYTES
        path = segment_path(self.directory / SEGMENTS, self._number)
        if not path.exists():
            log.warning("segment_not_kept", file=str(path), reason="it was moved away before the store had it")
        elif self._write_extent(path, segment_file(self._number), path.stat().st_size):
            return True
        self._write_index(self._number)
        self._number, self._extents = self._number + 1, []
        self._save_end()
        return True

    def _write_extent(self, path: Path, file: str, end: int) -> bool:
        """Uploads the next extent up to an offset; False where there is none."""
        due = next(next_extents(self._extents, end, self.most_bytes), None)
        if due is None:
            return False
        start, stop = due
        extent = self._put(file, start, 0, _read(path, start, stop))
        covered = [old for old in self._extents if old.start >= start]
        self._extents = [*(old for old in self._extents if old.start < start), extent]
        self._save_end()
        self._drop(covered)
        return True

    def _write_index(self, number: int) -> None:
        data = path_of(self.directory / SEGMENTS, number).read_bytes()
        for start in range(0, len(data), self.most_bytes):
            self._put(index_file(number), start, len(data), data[start : start + self.most_bytes])

    def _write_checkpoint(self) -> bool:
        """Uploads the next object of the newest checkpoint, or of a begun one; True where there is more."""
        if self._sending is None:
            if self._newest == (newest := self._newest_here()):
                return False
            self._sending = (newest, (self.directory / CHECKPOINTS / newest).open("rb"), [])
        name, file, extents = self._sending
        size = os.fstat(file.fileno()).st_size
        start = extents[-1].end if extents else 0
        file.seek(start)
        extents.append(self._put(f"{CHECKPOINTS}/{name}", start, size, file.read(self.most_bytes)))
        if extents[-1].end < size:
            return True
        file.close()
        self._sending, self._newest = None, name
        self._checkpoints.append(extents)
        while len(self._checkpoints) > KEEP:
            self._drop(self._checkpoints.pop(0))
        log.info("checkpoint_kept", file=name, bytes=size)
        return False

    def _put(self, file: str, start: int, of: int, data: bytes) -> Extent:
        extent = Extent(file, self._writer, start, start + len(data), of, hashlib.sha256(data).hexdigest())
        self.prefix.write(extent.name, data)
        return extent

    def _drop(self, extents: Sequence[Extent], *, any_writers: bool = False) -> None:
        """Deletes replaced extents that this writer wrote, since a later learner may continue from an earlier one's.

        Readers skip what stays after a failure.
        """
        with contextlib.suppress(StoreError):
            for extent in extents:
                if any_writers or extent.writer == self._writer:
                    self.prefix.remove(extent.name)

    def _save_end(self) -> None:
        self.uploaded = (self._number, self._extents[-1].end if self._extents else 0)

    def _newest_here(self) -> str:
        paths = stored(self.directory / CHECKPOINTS)
        return max(self._newest, paths[-1].name) if paths else self._newest


def _read(path: Path, start: int, stop: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(stop - start)
    if len(data) != stop - start:
        raise StoreError(f"{path} is shorter than it was; restore it from a copy")
    return data
