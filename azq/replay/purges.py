"""Whose games a run's window leaves out: kept beside the segment log, which itself keeps every byte as the proof of what was played."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from azq.errors import StoreError
from azq.files import publish_file
from azq.wire.messages import SampleEvent

FILE = "purged.json"


class Purges:
    """The workers of a log's folder whose games count no more, each with the moment until which he had finished them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._read: bytes = b""
        self._until_ms: dict[str, int] = {}
        self.reload()

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    def drops(self, event: SampleEvent) -> bool:
        """Whether a game is one of theirs."""
        return event.finished_ms <= self._until_ms.get(event.worker, -1)

    def order(self, until_ms: Mapping[str, int]) -> dict[str, int]:
        """Those of the orders that are new; they are on disk then. Raises `StoreError`."""
        fresh = {worker: until for worker, until in until_ms.items() if until > self._until_ms.get(worker, -1)}
        if fresh:
            self._until_ms |= fresh
            self._read = msgspec.json.encode(self._until_ms)
            try:
                publish_file(self._file, self._read)
            except OSError as error:
                raise StoreError(f"{self._file} cannot be written: {error.strerror}; free disk space there") from error
        return fresh

    def reload(self) -> list[str]:
        """Workers whom another process ordered out since this was last asked. Raises `StoreError`."""
        try:
            found = self._file.read_bytes() if self._file.exists() else b""
            if found == self._read:
                return []
            before, self._read = self._until_ms, found
            self._until_ms = msgspec.json.decode(found, type=dict[str, int])
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"{self._file} cannot be read: {error}; write it again: azq volunteers purge") from error
        return [worker for worker, until in self._until_ms.items() if until > before.get(worker, -1)]


def mark_of(worker: str) -> int:
    """What a window remembers of who made a sample: 31 bits, of which 0 is nobody."""
    return zlib.crc32(worker.encode()) >> 1 or 1
