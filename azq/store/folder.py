"""A local or shared folder, one file a blob: renaming makes it whole or absent, whatever its size."""

from __future__ import annotations

import stat
from pathlib import Path

from azq.errors import StoreError
from azq.files import make_folders, publish_file
from azq.store.base import SUFFIX, hash_in, too_large
from azq.store.chunks import MAX_BLOB_BYTES


class Folder:
    """Blobs as files of a folder; `base` is the URL it was named by, empty for the run's own."""

    def __init__(self, directory: Path, base: str = "") -> None:
        self._directory = directory
        self._base = base

    def uri(self, sha256: str) -> str:
        """`file:<sha256>`, or below the base URL."""
        return f"{self._base}/{sha256}{SUFFIX}" if self._base else f"file:{sha256}"

    def write(self, uri: str, data: bytes) -> None:
        """Writes it whole: a reader sees all of it or nothing."""
        path = self._path(uri)
        try:
            make_folders(self._directory)
            publish_file(path, data)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}; free space or mend its rights") from None

    def read(self, uri: str) -> bytes | None:
        """The file's bytes, or None where there is none."""
        path = self._path(uri)
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BLOB_BYTES:
                raise too_large(uri)
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror or error}; mend its rights") from None

    def remove(self, uri: str) -> None:
        """Deletes the file."""
        path = self._path(uri)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot delete {path}: {error.strerror or error}; mend its rights") from None

    def _path(self, uri: str) -> Path:
        return self._directory / f"{hash_in(uri)}{SUFFIX}"
