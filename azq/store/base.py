"""What a store is, and what each place behind one does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from azq.errors import StoreError
from azq.store.chunks import MAX_BLOB_BYTES, Manifest

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
    def read(self, uri: str) -> bytes | None:
        """What stands under the blob's name, at most `MAX_BLOB_BYTES`; None where nothing does."""

    def remove(self, uri: str) -> None:
        """Forgets a blob with its chunks."""


class ChunkedPlace(Place, Protocol):
    """Storage that keeps large blobs in chunks: where one value blocks others, or where a write may break off."""

    def write_chunks(self, uri: str, manifest: Manifest, data: bytes) -> None:
        """Writes the chunks, and the manifest under the blob's name once all are there."""

    def read_chunks(self, uri: str, manifest: Manifest) -> Sequence[bytes | None]:
        """Every chunk in order, no longer than the manifest says; None for one that is gone."""


def too_large(uri: str) -> StoreError:
    """The error for what is larger than any blob."""
    return StoreError(f"blob at {uri} has more than {MAX_BLOB_BYTES} bytes; such weights azq neither writes nor reads")


def hash_in(uri: str) -> str:
    """The sha256 that a URI names; StoreError where it names none."""
    found = _SHA256.fullmatch(uri.removesuffix(SUFFIX).replace("/", ":").rpartition(":")[2])
    if found is None:
        raise StoreError(f"blob URI {uri!r} names no sha256; was it written by another version of azq?")
    return found.group()
