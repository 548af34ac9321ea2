"""Blobs named by their hash: weights travel through here.

A blob is written whole or not at all and verified whenever it is read. Where it is kept:

    file                  the run's own folder, the default on one machine or a shared disk; URI `file:<sha256>`
    redis                 the control plane; URI `redis:<sha256>`
    file:///folder, memory://name, s3://bucket/prefix, any other fsspec URL; URI is the blob's URL

A store writes to one place and reads any URI, so that readers need not be configured like the writer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Protocol

import redis

from azq.errors import ConfigError, MissingExtra, StoreError, WeightsError
from azq.wire import keys
from azq.wire.connect import translate

SUFFIX = ".safetensors"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Store(Protocol):
    """A place for blobs. Every method may raise `StoreError`, and `BrokerError` where the control plane is the place."""

    def put(self, data: bytes) -> tuple[str, str]:
        """Keeps a blob; returns its sha256 and URI once it is durable. Repeating it is harmless."""

    def get(self, uri: str, sha256: str) -> bytes:
        """A blob, verified. Raises `StoreError` where it is missing and `WeightsError` where it is damaged."""

    def delete(self, uri: str) -> None:
        """Forgets a blob; one that is gone is passed over."""


class Place(Protocol):
    """One kind of storage; `uri` names a blob within it."""

    def uri(self, sha256: str) -> str: ...
    def write(self, uri: str, data: bytes) -> None: ...
    def read(self, uri: str) -> bytes | None: ...
    def remove(self, uri: str) -> None: ...


def open_store(url: str, *, directory: Path, client: redis.Redis | None = None) -> Store:
    """The store of `store.url`; `directory` is the run's folder for weights, `client` a client of the control plane.

    Raises `ConfigError` for a URL of no known kind and `MissingExtra` where its fsspec package is not installed.
    """
    return BlobStore(url, directory, client)


def weights_folder(said: str, home: Path, run: str) -> Path:
    """Where a run's weights are on this host: below the folder that the run names, or on another host below `home`."""
    # A path of another machine may lie where this user must not even look: os.path says False then, Path raises.
    return (Path(said) if said and os.path.isdir(said) else home / run) / "weights"


class BlobStore:
    """Writes to one place, reads and deletes wherever a URI points."""

    def __init__(self, url: str, directory: Path, client: redis.Redis | None) -> None:
        self._directory = directory
        self._client = client
        self._place = self._place_of_store(url)

    def put(self, data: bytes) -> tuple[str, str]:
        """Keeps a blob; returns its sha256 and URI."""
        sha256 = hashlib.sha256(data).hexdigest()
        uri = self._place.uri(sha256)
        self._place.write(uri, data)
        return sha256, uri

    def get(self, uri: str, sha256: str) -> bytes:
        """A blob, verified."""
        data = self._place_of_blob(uri).read(uri)
        if data is None:
            raise StoreError(f"no blob at {uri}; it was deleted, or this host does not see the place it was written to (store.url)")
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise WeightsError(f"blob at {uri} is damaged: its hash is {found[:12]}, not {sha256[:12]}; publish the weights again")
        return data

    def delete(self, uri: str) -> None:
        """Forgets a blob."""
        self._place_of_blob(uri).remove(uri)

    def _place_of_store(self, url: str) -> Place:
        if url == "file":
            return Folder(self._directory)
        if url == "redis":
            return ControlPlane(self._need_client())
        if "://" not in url:
            raise ConfigError(f"store.url {url!r} is none of file, redis, or an fsspec URL such as s3://bucket/prefix")
        _check_no_secret(url)
        if url.startswith("file://"):
            return Folder(Path(url.removeprefix("file://")), base=url.rstrip("/"))
        return Remote(url.rstrip("/"))

    def _place_of_blob(self, uri: str) -> Place:
        if uri.startswith("file://"):
            folder, _, _ = uri.rpartition("/")
            return Folder(Path(folder.removeprefix("file://")), base=folder)
        if uri.startswith("file:"):
            return Folder(self._directory)
        if uri.startswith("redis:"):
            return ControlPlane(self._need_client())
        if "://" in uri:
            return Remote(uri.rpartition("/")[0])
        raise StoreError(f"blob URI {uri!r} has no known form; was it written by another version of azq?")

    def _need_client(self) -> redis.Redis:
        if self._client is None:
            raise ConfigError("the store `redis` needs the control plane; set broker.control_url")
        return self._client


class Folder:
    """A local or shared folder, one file a blob."""

    def __init__(self, directory: Path, base: str = "") -> None:
        self._directory = directory
        self._base = base

    def uri(self, sha256: str) -> str:
        """`file:<sha256>`, or below the base URL."""
        return f"{self._base}/{sha256}{SUFFIX}" if self._base else f"file:{sha256}"

    def write(self, uri: str, data: bytes) -> None:
        """Writes beside, makes it durable, then renames: a reader sees all of it or nothing."""
        path = self._path(uri)
        fresh = ""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            handle, fresh = tempfile.mkstemp(prefix=".part-", dir=self._directory)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(fresh, 0o644)
            os.replace(fresh, path)
            _sync_folder(self._directory)
        except OSError as error:
            if fresh:
                with contextlib.suppress(OSError):
                    os.unlink(fresh)
            raise StoreError(f"cannot write {path}: {error.strerror or error}; free space or mend its rights") from None

    def read(self, uri: str) -> bytes | None:
        """The file's bytes, or None where there is none."""
        path = self._path(uri)
        try:
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
        return self._directory / f"{_hash_in(uri)}{SUFFIX}"


class ControlPlane:
    """Values of the control plane: for runs on many machines without a shared disk."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def uri(self, sha256: str) -> str:
        """`redis:<sha256>`."""
        return f"redis:{sha256}"

    def write(self, uri: str, data: bytes) -> None:
        """Sets the value."""
        with translate(self._client):
            self._client.set(keys.blob(_hash_in(uri)), data)

    def read(self, uri: str) -> bytes | None:
        """The value, or None."""
        with translate(self._client):
            value: Any = self._client.get(keys.blob(_hash_in(uri)))
        return None if value is None else bytes(value)

    def remove(self, uri: str) -> None:
        """Deletes the value."""
        with translate(self._client):
            self._client.delete(keys.blob(_hash_in(uri)))


class Remote:
    """Any file system that fsspec knows. Object stores write whole objects; elsewhere the hash tells a torn one."""

    def __init__(self, base: str) -> None:
        import fsspec

        self._base = base
        try:
            self._files, _ = fsspec.core.url_to_fs(base)
        except ImportError as error:
            raise MissingExtra(f"store.url {base} needs another package: {error}; install it") from None
        except (ValueError, OSError) as error:
            raise ConfigError(f"store.url {base} cannot be opened: {error}; mend azq.toml") from None

    def uri(self, sha256: str) -> str:
        """The blob's URL."""
        return f"{self._base}/{sha256}{SUFFIX}"

    def write(self, uri: str, data: bytes) -> None:
        """Writes one object."""
        try:
            self._files.makedirs(self._files._strip_protocol(self._base), exist_ok=True)
            self._files.pipe_file(self._files._strip_protocol(uri), data)
        except Exception as error:  # every file system raises errors of its own
            raise StoreError(f"cannot write {uri}: {error}; check the store and its credentials") from None

    def read(self, uri: str) -> bytes | None:
        """The object, or None."""
        try:
            return bytes(self._files.cat_file(self._files._strip_protocol(uri)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise StoreError(f"cannot read {uri}: {error}; check the store and its credentials") from None

    def remove(self, uri: str) -> None:
        """Deletes the object."""
        try:
            self._files.rm_file(self._files._strip_protocol(uri))
        except FileNotFoundError:
            return
        except Exception as error:
            raise StoreError(f"cannot delete {uri}: {error}; check the store and its credentials") from None


def _hash_in(uri: str) -> str:
    found = _SHA256.fullmatch(uri.removesuffix(SUFFIX).replace("/", ":").rpartition(":")[2])
    if found is None:
        raise StoreError(f"blob URI {uri!r} names no sha256; was it written by another version of azq?")
    return found.group()


def _check_no_secret(url: str) -> None:
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError("store.url holds a user or password, which would travel with every weight event; use the provider's environment")


def _sync_folder(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
