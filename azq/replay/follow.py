"""Follows a segment log that another process appends to: each whole record once, in order. No lock, no cut."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from azq.errors import StoreError
from azq.replay import framing
from azq.replay.index import read_index

_READ_BYTES = 262_144


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

    def read(self, most: int) -> Iterator[bytes]:
        """Up to `most` frames that were not read before, oldest first."""
        if not self._number:
            self._number = self._first_file()
        while self._number:
            # Looked at first: a file that is read to its end before the next one begins may still grow.
            ended = self._path(self._number + 1).exists()
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
        number = newest = max((int(path.stem) for path in self._directory.glob("*.seg") if path.stem.isdigit()), default=0)
        missing = self._samples
        while number and missing > 0 and self._path(number).exists():
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

    @contextlib.contextmanager
    def _opened(self, number: int) -> Iterator[BinaryIO]:
        path = self._path(number)
        try:
            with path.open("rb", buffering=_READ_BYTES) as file:
                head = file.read(framing.LONGEST_HEADER)
                file.seek(framing.read_header(head, str(path)).size if head else 0)  # empty: begun just now
                yield file
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}; let this rank's user read the run's folder") from error

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:06d}.seg"
