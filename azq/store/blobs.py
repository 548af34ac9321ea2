"""Writes blobs to one place; reads them there, in the run's own folder and in the control plane."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Protocol

import redis

from azq.config import StoreConfig
from azq.errors import ConfigError, StoreError, WeightsError
from azq.store.chunks import MAX_BLOB_BYTES, decode_manifest, hash_in, manifest_of, too_large
from azq.store.places import ChunkedStorage, ControlPlaneBlobs, Folder
from azq.store.remote import Remote
from azq.wire.messages import RunRecord


class Store(Protocol):
    """A place for blobs. Every method may raise `StoreError`, and `BrokerError` where the control plane is the place."""

    def put(self, data: bytes) -> tuple[str, str]:
        """Keeps a blob; returns its sha256 and URI once it is durable. Repeating it is harmless."""

    def get(self, uri: str, sha256: str) -> bytes:
        """A blob, verified. Raises `StoreError` where it is missing and `WeightsError` where it is damaged."""

    def delete(self, uri: str) -> None:
        """Forgets a blob; one that is gone is passed over."""


def open_store(settings: StoreConfig | str, *, directory: Path, client: redis.Redis | None = None) -> Store:
    """The store of these settings (or of a URL alone); `directory` is the run's folder for weights, `client` one of the control plane.

    Raises `ConfigError` for a URL of no known kind and `MissingExtra` where its fsspec package is not installed.
    """
    return BlobStore(StoreConfig(url=settings) if isinstance(settings, str) else settings, directory, client)


def open_run_store(settings: StoreConfig | str, record: RunRecord, home: Path, client: redis.Redis | None = None) -> Store:
    """The store of a run's weights as this host reaches it; raises what `open_store` raises."""
    return open_store(settings, directory=weights_folder(record, home), client=client)


def weights_folder(record: RunRecord, home: Path) -> Path:
    """Where a run's weights are on this host: below the folder that the run names, or on another host below `home`."""
    # A path of another machine may lie where this user must not even look: os.path says False then, Path raises.
    return (Path(record.directory) if record.directory and os.path.isdir(record.directory) else home / record.run) / "weights"


class BlobStore:
    """Writes to one place; reads and deletes what its own places name so, and nothing else that a URI may say."""

    def __init__(self, settings: StoreConfig, directory: Path, client: redis.Redis | None) -> None:
        self._settings = settings
        self._directory = directory
        self._client = client
        self._place = self._place_of_store(settings.url)

    def put(self, data: bytes) -> tuple[str, str]:
        """Keeps a blob; returns its sha256 and URI."""
        sha256 = hashlib.sha256(data).hexdigest()
        uri = self._place.uri(sha256)
        if len(data) > MAX_BLOB_BYTES:
            raise too_large(uri)
        if isinstance(self._place, Folder) or (manifest := manifest_of(data, self._settings.chunk_bytes)) is None:
            self._place.write(uri, data)
        else:
            self._place.write_chunks(uri, manifest, data)
        return sha256, uri

    def get(self, uri: str, sha256: str) -> bytes:
        """A blob, verified."""
        place = self._place_of_blob(uri)
        data = place.read(uri)
        if data is None:
            raise StoreError(f"no blob at {uri}; it was deleted, or this host does not see the place it was written to (store.url)")
        found = hashlib.sha256(data).hexdigest()
        if found != sha256 and not isinstance(place, Folder):
            data = _assemble(place, uri, data)
            found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise WeightsError(f"blob at {uri} is damaged: its hash is {found[:12]}, not {sha256[:12]}; publish the weights again")
        return data

    def delete(self, uri: str) -> None:
        """Forgets a blob."""
        self._place_of_blob(uri).remove(uri)

    def _place_of_store(self, url: str) -> Folder | ChunkedStorage:
        if url == "file":
            return Folder(self._directory)
        if url == "redis":
            return ControlPlaneBlobs(self._need_client())
        if "://" not in url:
            raise ConfigError(f"store.url {url!r} is none of file, redis, or an fsspec URL such as s3://bucket/prefix")
        _check_no_secret(url)
        if url.startswith("file://"):
            return Folder(Path(url.removeprefix("file://")), base=url.rstrip("/"))
        return Remote(url.rstrip("/"), self._settings.revealed_options(), self._settings.timeout_s)

    def _place_of_blob(self, uri: str) -> Folder | ChunkedStorage:
        """The place that gives a blob this very URI. Raises `StoreError` where this host has none: weight events are written by others."""
        sha256 = hash_in(uri)
        for place in (self._place, Folder(self._directory), *([ControlPlaneBlobs(self._client)] if self._client else [])):
            if place.uri(sha256) == uri:
                return place
        raise StoreError(
            f"blob URI {uri!r} is in no place of this host (store.url is {self._settings.url}); set store.url alike on every host"
        )

    def _need_client(self) -> redis.Redis:
        if self._client is None:
            raise ConfigError("the store `redis` needs the control plane; set broker.control_url")
        return self._client


def _assemble(place: ChunkedStorage, uri: str, data: bytes) -> bytes:
    """The blob whose manifest these bytes are; they themselves where they are none."""
    manifest = decode_manifest(data)
    if manifest is None:
        return data
    chunks = place.read_chunks(uri, manifest)
    missing = sum(chunk is None for chunk in chunks)
    if missing:
        raise StoreError(f"blob at {uri} lacks {missing} of its {len(chunks)} chunks; it is being deleted, or publish the weights again")
    return b"".join(chunk for chunk in chunks if chunk is not None)


def _check_no_secret(url: str) -> None:
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError("store.url holds a user or password, which would travel with every weight event; use the provider's environment")
