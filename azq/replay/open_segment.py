"""The newest file of a segment log: the one that games are appended to, until it is closed with an index."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from azq import logs
from azq.errors import IllegalActionError, SegmentError, WireError
from azq.files import sync_folder, write_all
from azq.replay import framing
from azq.replay.index import BLOCK_GAMES, SegmentIndex, UidSet, pack, write_index
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent

log = logs.get(__name__)


class OpenSegment:
    """A file with its games. Every method may raise `OSError`; what was there before stays whole."""

    def __init__(self, path: Path, header: framing.Header, data: bytes) -> None:
        self.path = path
        self.created_ms = header.created_ms
        self.is_marked = header.marked
        self.end = len(data)
        self.uids: array[int] = array("Q")
        self.samples: array[int] = array("I")  # of each game
        self._game = header.game
        self._hash = hashlib.sha256(data)
        self._file: int | None = None

    @classmethod
    def create(cls, path: Path, game: str, created_ms: int) -> OpenSegment:
        head = framing.header(game, created_ms)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        try:
            write_all(file, head)
            os.fsync(file)
            sync_folder(path.parent)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        segment = cls(path, framing.read_header(head, str(path)), head)
        segment._file = file
        return segment

    @classmethod
    def read(cls, path: Path, data: bytes, game: str, count: Callable[[SampleEvent], int], uids: UidSet, *, is_last: bool) -> OpenSegment:
        """A file that holds `data` and has no index; a tail that was never synced is cut off where it is the last one.

        What it holds then is on disk and marked, also what a learner wrote that died before its fsync; the games' numbers are added to
        `uids`. Raises `SegmentError` for damage and for what is no game.
        """
        framing.check_header(data, game, str(path))
        header = framing.read_header(data, str(path))
        parsed = framing.parse(data, header.size)
        if parsed.damage and (not is_last or framing.was_synced(data, parsed.end, marked=header.marked)):
            raise SegmentError(
                f"{path} at offset {parsed.end}: {parsed.damage}, and records follow; restore the file from a copy, "
                f"or cut it there (truncate -s {parsed.end}) and give up the games behind it"
            )
        segment = cls(path, header, data[: parsed.end])
        segment._note(framing.placed_frames(data, header.size, parsed.end), count, uids)
        segment._settle(data, parsed.damage)
        return segment

    def append(self, data: bytes, uids: list[int], samples: list[int]) -> None:
        """Adds records of games; they are on disk when this returns, and nothing of them is there when it raises."""
        file = self._opened()
        try:
            write_all(file, data)
            os.fsync(file)
        except OSError:
            # Closed whatever happens: the next append cuts the file again, durably, before it writes.
            try:
                os.ftruncate(file, self.end)
            finally:
                self.close()
            raise
        self._grow(data)
        self.uids.extend(uids)
        self.samples.extend(samples)
        self._mark()

    def seal(self) -> SegmentIndex:
        """Closes the file for good and writes its index."""
        os.fsync(self._opened())  # the last mark counts among the file's bytes
        self.close()
        index = SegmentIndex(
            segment=int(self.path.stem),
            game=self._game,
            created_ms=self.created_ms,
            size=self.end,
            sha256=self._hash.digest(),
            games=len(self.uids),
            blocks=self.blocks(),
            pages=pack(np.array(self.uids, np.uint64)),
        )
        write_index(self.path.parent, index)
        return index

    def blocks(self) -> tuple[int, ...]:
        """Samples of each `BLOCK_GAMES` games."""
        starts = np.arange(0, len(self.samples), BLOCK_GAMES)
        return tuple(np.add.reduceat(np.frombuffer(self.samples, np.uint32), starts, dtype=np.int64).tolist()) if len(starts) else ()

    def close(self) -> None:
        """Closes the descriptor; `append` opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        """The file for appending; when it is opened, it is on disk as it should be before anything is written behind it."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(self._file, self.end)
            os.fsync(self._file)
        return self._file

    def _note(self, frames: Iterable[tuple[int, bytes]], count: Callable[[SampleEvent], int], uids: UidSet) -> None:
        for offset, frame in frames:
            try:
                event = decode(frame, SampleEvent)
                samples = count(event)
            except (WireError, IllegalActionError) as error:
                raise SegmentError(f"{self.path} at offset {offset}: {error}; use the azq that wrote it") from error
            if not uids.add(event.record.uid):
                raise SegmentError(f"{self.path} at offset {offset}: game {event.record.uid} is there twice; restore the file from a copy")
            self.uids.append(event.record.uid)
            self.samples.append(samples)

    def _settle(self, data: bytes, damage: str) -> None:
        marked = framing.is_marked(data, self.end)
        if damage:
            log.warning("segment_tail_cut", file=str(self.path), offset=self.end, bytes_dropped=len(data) - self.end, reason=damage)
        if damage or not marked:
            self._opened()
        if not marked:
            self._mark()

    def _mark(self) -> None:
        """Says in the file that all before was synced. A disk that takes no mark has the games; `append` cuts off what it took."""
        if not self.is_marked:
            return
        mark = framing.mark(self.end)
        try:
            write_all(self._opened(), mark)
        except OSError:
            self.close()
        else:
            self._grow(mark)

    def _grow(self, data: bytes) -> None:
        self.end += len(data)
        self._hash.update(data)
