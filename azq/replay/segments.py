"""The append-only log of a run's finished games: the replay buffer's durable form, one game number once.

A game counts as stored when `append` has returned; only then may its sample event be acknowledged. All files but the newest are closed and
have an index: opening reads the indexes and the newest file. A closed file may be moved away as long as its index stays.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from azq import logs
from azq.errors import IllegalActionError, SegmentError, StoreError, WireError
from azq.files import make_folders, sync_folder, write_all
from azq.replay import framing
from azq.replay.index import BLOCK_GAMES, SegmentIndex, UidSet, misfit, moved_away, pack, path_of, read_index, segment_path, write_index
from azq.replay.samples import count_samples
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent

ROLL_BYTES = 64 << 20

log = logs.get(__name__)


LogEnd: TypeAlias = tuple[int, int]  # number of the newest file, and bytes of it; ends sort by age


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One finished game on its way into the log."""

    uid: int
    samples: int  # that it gives
    frame: bytes  # of its `SampleEvent`


class OpenSegment:
    """The newest file, which games are appended to until it is closed with an index.

    Every method may raise `OSError`; what was there before stays whole.
    """

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
        segment._mark_or_cut(data, parsed.damage)
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
            sync_folder(self.path.parent)  # who began the file may have died before its name was on disk
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

    def _mark_or_cut(self, data: bytes, damage: str) -> None:
        marked = framing.is_marked(data, self.end)
        if damage:
            log.warning("segment_tail_cut", file=str(self.path), offset=self.end, bytes_dropped=len(data) - self.end, reason=damage)
        if damage or not marked:
            self._opened()
        if not marked:
            self._mark()

    def _mark(self) -> None:
        """Marks all before it as synced. Without room for the mark the games are safe; `append` cuts off a partial mark."""
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


class SegmentLog:
    """Files `000001.seg`, `000002.seg`, ... of one folder, opened for appending.

    Opening checks every record of the newest file and asks `count` for the samples of each, as its `LogEntry` had them; a tail that was
    never synced is cut off and logged. It does the same for older files that have no index yet, and gives them one. `created_ms` is the
    run's and is stamped on new files; a file of another life of the run is closed. `progress` is called often with what is being read.
    Raises `SegmentError` naming file, offset and remedy for damage anywhere else, `StoreError` when the folder cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        game: str,
        *,
        roll_bytes: int = ROLL_BYTES,
        count: Callable[[SampleEvent], int] = count_samples,
        created_ms: int = 0,
        progress: Callable[[str], None] = lambda what: None,
    ) -> None:
        self._directory = directory
        self.game = game
        self._roll_bytes = roll_bytes
        self._count = count
        self._created_ms = created_ms
        self._progress = progress
        self.uids = UidSet()  # numbers of the games in the log; not to be changed by others
        self._closed: list[SegmentIndex] = []  # without their game numbers
        self._open: OpenSegment | None = None
        self.samples = 0  # in the log
        try:
            make_folders(directory)
            self._open_all()
        except OSError as error:
            raise StoreError(f"segments in {directory} cannot be opened: {error.strerror}; check the folder and its permissions") from error

    @property
    def games(self) -> int:
        return len(self.uids)

    @property
    def end(self) -> LogEnd:
        """Behind the last game; any thread may ask. All before it is on disk and stays as it is."""
        opened = self._open
        return (int(opened.path.stem), opened.end) if opened else (len(self._closed) + 1, 0)

    @property
    def created_ms(self) -> int:
        """When the run was created that wrote the newest file, by that file; 0 where it does not say."""
        newest = self._open or (self._closed[-1] if self._closed else None)
        return newest.created_ms if newest else 0

    def __contains__(self, uid: int) -> bool:
        return uid in self.uids

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Stores games and returns when they are on disk.

        Raises `StoreError` when the disk does not take them: nothing of the call is then in the log. Raises `ValueError` for a game number
        that is in the log already.
        """
        if not entries:
            return
        numbers = [entry.uid for entry in entries]
        if len(set(numbers)) != len(numbers) or any(uid in self.uids for uid in numbers):
            raise ValueError("a game number may be stored once; drop duplicates before append")
        samples = [entry.samples for entry in entries]
        data = framing.records(*(entry.frame for entry in entries))
        try:
            self._room(len(data)).append(data, numbers, samples)
        except OSError as error:
            raise StoreError(
                f"segments in {self._directory} do not take {len(data)} bytes: {error.strerror}; "
                "free disk space there; the games wait in the sample stream"
            ) from error
        for uid in numbers:
            self.uids.add(uid)
        self.samples += sum(samples)

    def tail(self, samples: int) -> Iterator[bytes]:
        """Frames of the newest games, oldest first: at least those that together hold `samples` samples, at most `BLOCK_GAMES` more.

        Raises `SegmentError` for a file that does not fit its index, `StoreError` for one that was moved away.
        """
        blocks = [index.blocks for index in self._closed] + [self._open.blocks() if self._open else ()]
        first, games = _start_of_tail(blocks, samples)
        for index in self._closed[first:]:
            yield from self._frames_of(index, games)
            games = 0
        if self._open is not None:
            data = self._open.path.read_bytes()
            yield from framing.frames(data, framing.read_header(data, str(self._open.path)).size, self._open.end, skip=games)

    def close(self) -> None:
        """Closes the open file; the log may be opened again."""
        if self._open is not None:
            self._open.close()

    def _frames_of(self, index: SegmentIndex, skip: int) -> Iterator[bytes]:
        path = segment_path(self._directory, index.segment)
        try:
            data = index.check(path.read_bytes(), path)
        except FileNotFoundError:
            raise moved_away(path, "or lower learner.max_window: training reads it") from None
        yield from framing.frames(data, framing.read_header(data, str(path)).size, index.size, skip=skip)

    def _room(self, size: int) -> OpenSegment:
        opened = self._open
        if opened is not None and (not self._is_ours(opened) or (opened.uids and opened.end + size > self._roll_bytes)):
            self._seal(opened)
        if self._open is None:
            self._open = OpenSegment.create(segment_path(self._directory, len(self._closed) + 1), self.game, self._created_ms)
        return self._open

    def _is_ours(self, opened: OpenSegment) -> bool:
        return opened.is_marked and opened.created_ms == self._created_ms

    def _seal(self, opened: OpenSegment) -> None:
        self._closed.append(msgspec.structs.replace(opened.seal(), pages={}))
        self._open = None

    def _open_all(self) -> None:
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(self._directory)}
        last = max((int(name[:-4]) for name in sizes if name[-4:] in (".seg", ".idx") and name[:-4].isdigit()), default=0)
        for segment in range(1, last + 1):
            path = segment_path(self._directory, segment)
            self._progress(f"file {segment} of {last}")
            if (index := read_index(self._directory, segment)) is not None:
                self._take(index, path, sizes.get(path.name))
            elif path.name in sizes:
                self._read(path, is_last=segment == last)
            else:
                raise SegmentError(f"{path} is missing, and {path_of(self._directory, segment).name} too; restore either from a copy")

    def _take(self, index: SegmentIndex, path: Path, size: int | None) -> None:
        if index.game != self.game:
            raise SegmentError(f"{path}: holds games of {index.game!r}, the run plays {self.game!r}; restore the run's own segments")
        if size not in (None, index.size):
            raise misfit(path, f"{size} bytes in place of {index.size}")
        try:
            is_new = self.uids.merge(index.pages)
        except (zlib.error, OverflowError) as error:
            raise misfit(path, f"its game numbers do not unpack ({error})") from error
        if not is_new:
            raise misfit(path, "games that are in files before it, too")
        self._closed.append(msgspec.structs.replace(index, pages={}))
        self.samples += index.samples

    def _read(self, path: Path, *, is_last: bool) -> None:
        data = path.read_bytes()
        if is_last and framing.is_begun(data, self.game):
            log.warning("segment_tail_cut", file=str(path), offset=0, bytes_dropped=len(data), reason="header is cut short")
            path.unlink()
            return
        opened = OpenSegment.read(path, data, self.game, self._counted(path), self.uids, is_last=is_last)
        self.samples += sum(opened.samples)
        self._open = opened
        if not is_last:
            self._seal(opened)

    def _counted(self, path: Path) -> Callable[[SampleEvent], int]:
        what = f"the games of {path.name}"

        def count(event: SampleEvent) -> int:
            self._progress(what)
            return self._count(event)

        return count


def _start_of_tail(files: Sequence[Sequence[int]], samples: int) -> tuple[int, int]:
    """Number of the file, and games to skip in it, where the newest `samples` samples begin; blocks of samples by file."""
    for number, blocks in reversed(list(enumerate(files))):
        for block, count in reversed(list(enumerate(blocks))):
            samples -= count
            if samples <= 0:
                return number, block * BLOCK_GAMES
    return 0, 0
