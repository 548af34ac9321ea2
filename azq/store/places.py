"""Where blobs may lie: what each place does, a folder, the control plane; `azq.store.remote` has the others."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import redis

from azq.errors import StoreError
from azq.files import make_folders, publish_file
from azq.store.chunks import MAX_BLOB_BYTES, SUFFIX, Manifest, decode_manifest, encode_manifest, hash_in, too_large
from azq.wire import keys
from azq.wire.connect import translate

UNFINISHED_LIFE_S = 3600  # of chunks whose manifest is never written

# KEYS[1] a chunk; ARGV[1] its bytes, ARGV[2] its life until the blob is whole. A chunk of a whole blob keeps living for ever.
_CHUNK = """
if redis.call('TTL', KEYS[1]) == -1 then return redis.call('SET', KEYS[1], ARGV[1]) end
return redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
"""
# KEYS[1] the blob's name, the others its chunks; ARGV[1] the manifest. 0 where a chunk is gone.
_WHOLE = """
for index = 2, #KEYS do if redis.call('EXISTS', KEYS[index]) == 0 then return 0 end end
for index = 2, #KEYS do redis.call('PERSIST', KEYS[index]) end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""


class Storage(Protocol):
    """One kind of storage; `uri` names a blob within it."""

    def uri(self, sha256: str) -> str: ...
    def write(self, uri: str, data: bytes) -> None: ...
    def read(self, uri: str) -> bytes | None:
        """What stands under the blob's name, at most `MAX_BLOB_BYTES`; None where nothing does."""

    def remove(self, uri: str) -> None:
        """Forgets a blob with its chunks."""


class ChunkedStorage(Storage, Protocol):
    """Storage that keeps large blobs in chunks: where one value blocks others, or where a write may break off."""

    def write_chunks(self, uri: str, manifest: Manifest, data: bytes) -> None:
        """Writes the chunks, and the manifest under the blob's name once all are there."""

    def read_chunks(self, uri: str, manifest: Manifest) -> Sequence[bytes | None]:
        """Every chunk in order, no longer than the manifest says; None for one that is gone."""


class Folder:
    """A local or shared folder, a file a blob, renamed whole into place; `base` is the URL it was named by, empty for the run's own."""

    def __init__(self, directory: Path, base: str = "") -> None:
        self._directory = directory
        self._base = base

    def uri(self, sha256: str) -> str:
        """`file:<sha256>`, or below the base URL."""
        return f"{self._base}/{sha256}{SUFFIX}" if self._base else f"file:{sha256}"

    def write(self, uri: str, data: bytes) -> None:
        """Writes it whole: a reader sees all of it or nothing."""
        path = self._path(uri)
        with _refusing("write", path, "free space or mend its rights"):
            make_folders(self._directory)
            publish_file(path, data)

    def read(self, uri: str) -> bytes | None:
        """The file's bytes, or None where there is none."""
        path = self._path(uri)
        with _refusing("read", path), suppress(FileNotFoundError):
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BLOB_BYTES:
                raise too_large(uri)
            return path.read_bytes()
        return None

    def remove(self, uri: str) -> None:
        """Deletes the file."""
        path = self._path(uri)
        with _refusing("delete", path):
            path.unlink(missing_ok=True)

    def _path(self, uri: str) -> Path:
        return self._directory / f"{hash_in(uri)}{SUFFIX}"


class ControlPlaneBlobs:
    """Values of the control plane, for runs on many machines without a shared disk.

    The server is blocked for one chunk at a time, and what a crash leaves expires.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def uri(self, sha256: str) -> str:
        """`redis:<sha256>`."""
        return f"redis:{sha256}"

    def write(self, uri: str, data: bytes) -> None:
        """Sets the value."""
        with translate(self._client):
            self._client.set(_key(uri), data)

    def write_chunks(self, uri: str, manifest: Manifest, data: bytes) -> None:
        """Sets the chunks with a life, then takes it from them and names the blob in one step."""
        names = _chunk_keys(uri, manifest)
        with translate(self._client):
            for name, chunk in zip(names, manifest.cut(data), strict=True):
                self._client.eval(_CHUNK, 1, name, chunk, UNFINISHED_LIFE_S)
            before: Any = self._client.get(_key(uri))
            whole: Any = self._client.eval(_WHOLE, 1 + len(names), _key(uri), *names, encode_manifest(manifest))
        if not whole:
            raise StoreError(f"chunks of {uri} expired before the last was written; is the control plane that slow? publish again")
        self._drop(set(_chunk_keys(uri, decode_manifest(before or b""))) - set(names))

    def read(self, uri: str) -> bytes | None:
        """The value, or None."""
        with translate(self._client):
            value: Any = self._client.get(_key(uri))
        return None if value is None else bytes(value)

    def read_chunks(self, uri: str, manifest: Manifest) -> Sequence[bytes | None]:
        """One value a round trip, so that nobody else waits for all of them."""
        chunks: list[bytes | None] = []
        for name, length in zip(_chunk_keys(uri, manifest), manifest.lengths, strict=True):
            with translate(self._client):
                value: Any = self._client.getrange(name, 0, length - 1)
            chunks.append(value or None)
        return chunks

    def remove(self, uri: str) -> None:
        """Deletes the name first, then the chunks."""
        with translate(self._client):
            held: Any = self._client.get(_key(uri))
            self._client.delete(_key(uri))
        self._drop(_chunk_keys(uri, decode_manifest(held or b"")))

    def _drop(self, names: set[str] | tuple[str, ...]) -> None:
        if names:
            with translate(self._client):
                self._client.unlink(*names)


def _key(uri: str) -> str:
    return keys.blob(hash_in(uri))


def _chunk_keys(uri: str, manifest: Manifest | None) -> tuple[str, ...]:
    return tuple(keys.blob_chunk(hash_in(uri), name) for name in manifest.names) if manifest else ()


@contextmanager
def _refusing(verb: str, path: Path, remedy: str = "mend its rights") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {verb} {path}: {error.strerror or error}; {remedy}") from None
