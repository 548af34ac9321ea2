"""Writes blobs to one place; reads them there, in the run's own folder and in the control plane.

A place is a folder, the control plane, or an fsspec URL.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import redis

from azq.config import StoreConfig
from azq.errors import ConfigError, StoreError, WeightsError
from azq.store.chunks import (
    CHUNK_BYTES,
    MAX_BLOB_BYTES,
    SUFFIX,
    Manifest,
    decode_manifest,
    encode_manifest,
    hash_in,
    manifest_of,
    too_large,
)
from azq.store.objects import FolderPrefix, ObjectPrefix, RemotePrefix
from azq.wire import keys
from azq.wire.connect import translate
from azq.wire.messages import RunRecord

FILE = "file://"
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


class ControlPlaneBlobs:
    """Values of the control plane, for runs on many machines without a shared disk.

    The server is blocked for one chunk at a time, and what a crash leaves expires.
    """

    def __init__(self, client: redis.Redis, chunk_bytes: int) -> None:
        self._client = client
        self._chunk_bytes = chunk_bytes

    def write(self, name: str, data: bytes) -> None:
        """Sets a large blob's chunks with a life, then takes it from them and names the blob in one step."""
        manifest = manifest_of(data, self._chunk_bytes)
        if manifest is None:
            with translate(self._client):
                self._client.set(_key(name), data)
            return
        parts = _chunk_keys(name, manifest)
        with translate(self._client):
            for part, chunk in zip(parts, manifest.cut(data), strict=True):
                self._client.eval(_CHUNK, 1, part, chunk, UNFINISHED_LIFE_S)
            before: Any = self._client.get(_key(name))
            whole: Any = self._client.eval(_WHOLE, 1 + len(parts), _key(name), *parts, encode_manifest(manifest))
        if not whole:
            raise StoreError(f"chunks of {name} expired before the last was written; is the control plane that slow? publish again")
        self._drop(set(_chunk_keys(name, decode_manifest(before or b""))) - set(parts))

    def read(self, name: str) -> bytes | None:
        with translate(self._client):
            value: Any = self._client.get(_key(name))
        return None if value is None else bytes(value)

    def read_chunks(self, name: str, manifest: Manifest) -> Sequence[bytes | None]:
        """One value a round trip, so that no other client waits for all of them."""
        chunks: list[bytes | None] = []
        for part, length in zip(_chunk_keys(name, manifest), manifest.lengths, strict=True):
            with translate(self._client):
                value: Any = self._client.getrange(part, 0, length - 1)
            chunks.append(value or None)
        return chunks

    def remove(self, name: str) -> None:
        """Deletes the name first, then the chunks."""
        with translate(self._client):
            held: Any = self._client.get(_key(name))
            self._client.delete(_key(name))
        self._drop(_chunk_keys(name, decode_manifest(held or b"")))

    def _drop(self, names: set[str] | tuple[str, ...]) -> None:
        if names:
            with translate(self._client):
                self._client.unlink(*names)


class Store(Protocol):
    """A place for blobs. Every method may raise `StoreError`, and `BrokerError` where the control plane is the place."""

    def put(self, data: bytes) -> tuple[str, str]:
        """Keeps a blob; returns its sha256 and URI once it is durable. Repeating it is harmless."""

    def get(self, uri: str, sha256: str) -> bytes:
        """A blob, verified. Raises `StoreError` where it is missing and `WeightsError` where it is damaged."""

    def delete(self, uri: str) -> None:
        """Forgets a blob; one that is gone is passed over."""


def open_store(settings: StoreConfig | str, *, directory: Path, client: redis.Redis | None = None, chunk_bytes: int = CHUNK_BYTES) -> Store:
    """The store of these settings (or of a URL alone); `directory` is the run's folder for weights, `client` one of the control plane.

    Raises `ConfigError` for a URL of no known kind and `MissingExtra` where its fsspec package is not installed.
    """
    return BlobStore(StoreConfig(url=settings) if isinstance(settings, str) else settings, directory, client, chunk_bytes)


def open_run_store(settings: StoreConfig | str, record: RunRecord, home: Path, client: redis.Redis | None = None) -> Store:
    """The store of a run's weights as this host reaches it; raises what `open_store` raises."""
    return open_store(settings, directory=weights_folder(record, home), client=client)


def weights_folder(record: RunRecord, home: Path) -> Path:
    """Where a run's weights are on this host: below the folder that the run names, or on another host below `home`."""
    # A path of another machine may lie where this user must not even look: os.path says False then, Path raises.
    return (Path(record.directory) if record.directory and os.path.isdir(record.directory) else home / record.run) / "weights"


def open_prefix(settings: StoreConfig, folder: str) -> ObjectPrefix | None:
    """The prefix of a run's games and checkpoints, `folder` of its store; None where the store keeps weights alone.

    Raises `ConfigError` for a store that can keep no more, and what `open_store` raises.
    """
    is_place = "://" in settings.url and not settings.url.startswith("memory://")
    if settings.keep == "weights" or (settings.keep == "auto" and not is_place):
        return None
    if "://" not in settings.url:
        raise ConfigError(f"store.keep is {settings.keep}, and store.url {settings.url} keeps weights alone; set a bucket or a file:// URL")
    return _prefix_at(f"{settings.url.rstrip('/')}/{folder}", settings)


def _prefix_at(url: str, settings: StoreConfig) -> FolderPrefix | RemotePrefix:
    if url.startswith(FILE):
        return FolderPrefix(Path(url.removeprefix(FILE)))
    return RemotePrefix(url, settings.revealed_options())


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """One place for blobs, as URIs name it."""

    base: str  # file, redis, or a URL
    storage: FolderPrefix | RemotePrefix | ControlPlaneBlobs

    def uri(self, sha256: str) -> str:
        """`file:<sha256>`, `redis:<sha256>`, or below the base URL."""
        return f"{self.base}/{sha256}{SUFFIX}" if "://" in self.base else f"{self.base}:{sha256}"


class BlobStore(Store):
    """Writes to one place; reads and deletes only URIs of these places of the host."""

    def __init__(self, settings: StoreConfig, directory: Path, client: redis.Redis | None, chunk_bytes: int) -> None:
        self._settings = settings
        self._folder = BlobPlace("file", FolderPrefix(directory))
        self._control_plane = BlobPlace("redis", ControlPlaneBlobs(client, chunk_bytes)) if client else None
        self._place = self._place_of_store(settings.url)

    def put(self, data: bytes) -> tuple[str, str]:
        sha256 = hashlib.sha256(data).hexdigest()
        if len(data) > MAX_BLOB_BYTES:
            raise too_large(self._place.uri(sha256))
        self._place.storage.write(f"{sha256}{SUFFIX}", data)
        return sha256, self._place.uri(sha256)

    def get(self, uri: str, sha256: str) -> bytes:
        name, storage = f"{hash_in(uri)}{SUFFIX}", self._place_of_blob(uri).storage
        data = storage.read(name)
        if data is None:
            raise StoreError(f"no blob at {uri}; it was deleted, or this host does not see the place it was written to (store.url)")
        digest = hashlib.sha256(data).hexdigest()
        if digest != sha256 and not isinstance(storage, FolderPrefix):
            data = _assemble(storage, uri, name, data)
            digest = hashlib.sha256(data).hexdigest()
        if digest != sha256:
            raise WeightsError(f"blob at {uri} is damaged: its hash is {digest[:12]}, not {sha256[:12]}; publish the weights again")
        return data

    def delete(self, uri: str) -> None:
        self._place_of_blob(uri).storage.remove(f"{hash_in(uri)}{SUFFIX}")

    def _place_of_store(self, url: str) -> BlobPlace:
        if url == "file":
            return self._folder
        if url == "redis":
            if self._control_plane is None:
                raise ConfigError("the store `redis` needs the control plane; set broker.control_url")
            return self._control_plane
        if "://" not in url:
            raise ConfigError(f"store.url {url!r} is none of file, redis, or an fsspec URL such as s3://bucket/prefix")
        if "@" in url.partition("://")[2].partition("/")[0]:
            why = "which would travel with every weight event; use the provider's environment"
            raise ConfigError(f"store.url holds a user or password, {why}")
        return BlobPlace(url.rstrip("/"), _prefix_at(url.rstrip("/"), self._settings))

    def _place_of_blob(self, uri: str) -> BlobPlace:
        """The place that gives a blob this very URI. Raises `StoreError` where this host has none: weight events are written by others."""
        sha256 = hash_in(uri)
        for place in (self._place, self._folder, self._control_plane):
            if place is not None and place.uri(sha256) == uri:
                return place
        raise StoreError(
            f"blob URI {uri!r} is in no place of this host (store.url is {self._settings.url}); set store.url alike on every host"
        )


def _assemble(storage: RemotePrefix | ControlPlaneBlobs, uri: str, name: str, data: bytes) -> bytes:
    """The blob whose manifest these bytes are; they themselves where they are none."""
    manifest = decode_manifest(data)
    if manifest is None:
        return data
    chunks = storage.read_chunks(name, manifest)
    missing = sum(chunk is None for chunk in chunks)
    if missing:
        raise StoreError(f"blob at {uri} lacks {missing} of its {len(chunks)} chunks; it is being deleted, or publish the weights again")
    return b"".join(chunk for chunk in chunks if chunk is not None)


def _key(name: str) -> str:
    return keys.blob(hash_in(name))


def _chunk_keys(name: str, manifest: Manifest | None) -> tuple[str, ...]:
    return tuple(keys.blob_chunk(hash_in(name), part) for part in manifest.names) if manifest else ()
