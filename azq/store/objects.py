"""Objects by name below one place of a store: files of a folder here, objects behind fsspec in `azq.store.remote`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from azq.errors import StoreError
from azq.files import below, make_folders, publish_file
from azq.store.chunks import MAX_BLOB_BYTES, too_large


class ObjectPrefix(Protocol):
    """Objects that are written once, whole, under names with slashes. Every method raises `StoreError`."""

    def names(self, folder: str = "") -> list[str]:
        """All objects below a folder."""

    def folders(self) -> list[str]:
        """The folders directly in it."""

    def write(self, name: str, data: bytes) -> None:
        """Returns once it is durable; a reader sees all of it or nothing."""

    def read(self, name: str) -> bytes | None:
        """An object, at most `MAX_BLOB_BYTES`; None where there is none."""

    def remove(self, name: str) -> None:
        """Deletes an object; one that is gone is passed over."""


class FolderPrefix(ObjectPrefix):
    """Files of a folder, such as one that hosts share, each renamed whole into place."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self, folder: str = "") -> list[str]:
        with _refusing("list", self._directory):
            paths = [Path(place, name) for place, _, files in os.walk(self._directory / folder) for name in files]
        return sorted(str(path.relative_to(self._directory)) for path in paths if path.suffix != ".tmp")

    def folders(self) -> list[str]:
        with _refusing("list", self._directory):
            return sorted(path.name for path in self._directory.iterdir() if path.is_dir()) if self._directory.exists() else []

    def write(self, name: str, data: bytes) -> None:
        path = below(self._directory, name)
        with _refusing("write", path, "free space or mend its rights"):
            make_folders(path.parent)
            publish_file(path, data)

    def read(self, name: str) -> bytes | None:
        path = below(self._directory, name)
        with _refusing("read", path):
            try:
                status = path.stat()
                if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BLOB_BYTES:
                    raise too_large(str(path))
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> None:
        path = below(self._directory, name)
        with _refusing("delete", path):
            path.unlink(missing_ok=True)


@contextmanager
def _refusing(verb: str, path: Path, remedy: str = "mend its rights") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {verb} {path}: {error.strerror or error}; {remedy}") from None
