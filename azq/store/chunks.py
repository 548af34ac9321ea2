"""Names of blobs, and the manifest of large ones that are kept in chunks. Pure.

The manifest is written after the last chunk, so a blob is there whole or not at all. Bytes that do not hash to their name and begin with
`MAGIC` are a manifest; nothing else tells the two apart, so a reader needs no setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from azq.errors import StoreError

SUFFIX = ".safetensors"
MAGIC = b"azq-chunks 1 "
MAX_BLOB_BYTES = 8 * 2**30  # larger ones are refused unread
CHUNK_BYTES = 8 * 2**20  # larger blobs of the control plane are chunked
MAX_CHUNKS = 100_000
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Manifest(msgspec.Struct, frozen=True):
    """A blob of `size` bytes in chunks of `chunk_bytes`; the last one may be shorter."""

    size: int
    chunk_bytes: int

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each chunk within its blob; other chunk sizes give other names."""
        return tuple(f"{self.chunk_bytes}-{index:05d}" for index in range(-(-self.size // self.chunk_bytes)))

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(min(self.chunk_bytes, self.size - start) for start in range(0, self.size, self.chunk_bytes))

    def cut(self, data: bytes) -> Iterator[memoryview]:
        """The chunks of a blob, in order, without a copy."""
        view = memoryview(data)
        for start in range(0, self.size, self.chunk_bytes):
            yield view[start : start + self.chunk_bytes]


def manifest_of(data: bytes, chunk_bytes: int) -> Manifest | None:
    """The chunks of a blob; None for a blob that stays whole."""
    return Manifest(len(data), chunk_bytes) if len(data) > chunk_bytes else None


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes that stand under the blob's name."""
    return MAGIC + msgspec.json.encode(manifest)


def decode_manifest(data: bytes) -> Manifest | None:
    """The manifest in these bytes; None where they are none, or one of more than a blob may have."""
    if not data.startswith(MAGIC):
        return None
    try:
        manifest = msgspec.json.decode(data[len(MAGIC) :], type=Manifest)
    except msgspec.DecodeError:
        return None
    return manifest if 0 < manifest.size <= min(MAX_BLOB_BYTES, manifest.chunk_bytes * MAX_CHUNKS) else None


def too_large(uri: str) -> StoreError:
    """The error for an object larger than `MAX_BLOB_BYTES`."""
    return StoreError(f"blob at {uri} has more than {MAX_BLOB_BYTES} bytes; such weights azq neither writes nor reads")


def hash_in(uri: str) -> str:
    """The sha256 that a URI names; StoreError where it names none."""
    match = _SHA256.fullmatch(uri.removesuffix(SUFFIX).replace("/", ":").rpartition(":")[2])
    if match is None:
        raise StoreError(f"blob URI {uri!r} names no sha256; was it written by another version of azq?")
    return match.group()
