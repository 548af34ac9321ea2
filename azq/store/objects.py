"""Objects by name below one prefix of a store: files of a folder, or objects behind fsspec (S3 and others), in bounded time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from azq.errors import ConfigError, MissingExtra, StoreError
from azq.files import below, make_folders, publish_file
from azq.store.chunks import MAX_BLOB_BYTES, Manifest, too_large

BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az"})  # no folders to make, and never a bucket by accident
CHUNKS = ".chunks"
TIMEOUT_S = 30.0  # of one operation behind a network


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
        with _translated("list", self._directory):
            paths = [Path(place, name) for place, _, files in os.walk(self._directory / folder) for name in files]
        return sorted(str(path.relative_to(self._directory)) for path in paths if path.suffix != ".tmp")

    def folders(self) -> list[str]:
        with _translated("list", self._directory):
            return sorted(path.name for path in self._directory.iterdir() if path.is_dir()) if self._directory.exists() else []

    def write(self, name: str, data: bytes) -> None:
        path = below(self._directory, name)
        with _translated("write", path, "free space or mend its rights"):
            make_folders(path.parent)
            publish_file(path, data)

    def read(self, name: str) -> bytes | None:
        path = below(self._directory, name)
        with _translated("read", path):
            try:
                status = path.stat()
                if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BLOB_BYTES:
                    raise too_large(str(path))
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> None:
        path = below(self._directory, name)
        with _translated("delete", path):
            path.unlink(missing_ok=True)


@contextmanager
def _translated(verb: str, path: Path, remedy: str = "mend its rights") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {verb} {path}: {error.strerror or error}; {remedy}") from None


class RemotePrefix(ObjectPrefix):
    """Any file system that fsspec knows. Object stores write whole objects; elsewhere the hash tells a torn one."""

    def __init__(self, base: str, options: Mapping[str, Any]) -> None:
        import fsspec

        self._base = base
        self._scheme = base.partition("://")[0]
        self._secrets = [value for value in options.values() if isinstance(value, str) and len(value) > 3]
        try:
            self._files, self._folder = fsspec.core.url_to_fs(base, **_bounded(self._scheme), **options)
        except ImportError as error:
            extra = ": pip install 'azq[s3]'" if self._scheme in ("s3", "s3a") else ""
            raise MissingExtra(f"store.url {base} needs another package: {error}; install it{extra}") from None
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError(f"store.url {base} cannot be opened: {self._reason(error)}; mend store.url or store.options") from None

    def names(self, folder: str = "") -> list[str]:
        self._files.invalidate_cache()
        root = self._folder.rstrip("/")
        paths: list[str] = []
        with self._translated("list", folder), suppress(FileNotFoundError):
            paths = self._call("find", f"{root}/{folder}".rstrip("/"))
        return sorted(str(path)[len(root) + 1 :] for path in paths)

    def folders(self) -> list[str]:
        return sorted(item["name"].rpartition("/")[2] for item in self._listed(self._folder) if item["type"] == "directory")

    def write(self, name: str, data: bytes) -> None:
        with self._translated("write", name):
            if self._scheme not in BUCKETS:
                self._files.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            self._call("pipe_file", self._path(name), data)

    def read(self, name: str) -> bytes | None:
        with self._translated("read", name), suppress(FileNotFoundError):
            if (self._call("size", self._path(name)) or 0) > MAX_BLOB_BYTES:
                raise too_large(f"{self._base}/{name}")
            return bytes(self._call("cat_file", self._path(name)))
        return None

    def remove(self, name: str) -> None:
        with self._translated("delete", name), suppress(FileNotFoundError):
            self._call("rm_file", self._path(name))

    def read_chunks(self, name: str, manifest: Manifest) -> Sequence[bytes | None]:
        """Every chunk of a blob that an earlier version wrote in chunks."""
        paths = [f"{self._path(name)}{CHUNKS}/{part}" for part in manifest.names]
        with self._translated("read", name):
            chunks = self._call("cat_ranges", paths, [0] * len(paths), list(manifest.lengths), on_error="return")
            for chunk in chunks:
                if isinstance(chunk, Exception) and not isinstance(chunk, FileNotFoundError):
                    raise chunk
        return [chunk if isinstance(chunk, bytes) else None for chunk in chunks]

    def _listed(self, path: str) -> list[dict[str, Any]]:
        self._files.invalidate_cache()
        with self._translated("list"), suppress(FileNotFoundError):
            return [{**item, "name": item["name"].rstrip("/")} for item in self._call("ls", path, detail=True)]
        return []

    def _path(self, name: str) -> str:
        return str(self._files._strip_protocol(f"{self._base}/{name}"))

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """A file system's operation; one that is asynchronous is given up after the store's time."""
        from fsspec.asyn import AsyncFileSystem, sync

        if isinstance(self._files, AsyncFileSystem):
            return sync(self._files.loop, getattr(self._files, f"_{name}"), *args, timeout=TIMEOUT_S, **options)
        return getattr(self._files, name)(*args, **options)

    @contextmanager
    def _translated(self, verb: str, name: str = "") -> Iterator[None]:
        """Translates any error of a file system, since each has other ones."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            uri = f"{self._base}/{name}" if name else self._base
            raise StoreError(f"cannot {verb} {uri}: {self._reason(error)}; {_remedy(self._scheme, error)}") from None

    def _reason(self, error: Exception) -> str:
        """The first line of a file system's error, without the configured secrets."""
        text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _bounded(scheme: str) -> dict[str, Any]:
    """Options that keep one call within the store's time, where the file system has such."""
    if scheme not in ("s3", "s3a"):
        return {}
    patience = {"connect_timeout": min(5.0, TIMEOUT_S), "read_timeout": TIMEOUT_S, "retries": {"max_attempts": 1}}
    return {"config_kwargs": patience}


def _remedy(scheme: str, error: Exception) -> str:
    if isinstance(error, PermissionError) or "credentials" in str(error).lower():
        return "check the credentials (for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) and what they may do"
    if isinstance(error, FileNotFoundError) and scheme in BUCKETS:
        return "create the bucket, or mend store.url"
    if isinstance(error, TimeoutError):
        return f"nothing came for {TIMEOUT_S:g} s; is the store overloaded or cut off?"
    return "check that the store can be reached (for S3 elsewhere: AWS_ENDPOINT_URL) and its credentials"
