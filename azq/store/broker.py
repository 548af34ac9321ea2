"""Blobs as values of the control plane: for runs on many machines without a shared disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from azq.errors import StoreError
from azq.store.base import hash_in
from azq.store.chunks import Manifest, decode_manifest, encode_manifest
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


class ControlPlane:
    """Values of the control plane; the server is blocked for one chunk at a time, and what a crash leaves expires."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def uri(self, sha256: str) -> str:
        """`redis:<sha256>`."""
        return f"redis:{sha256}"

    def write(self, uri: str, data: bytes) -> None:
        """Sets the value."""
        with translate(self._client):
            self._client.set(keys.blob(hash_in(uri)), data)

    def write_chunks(self, uri: str, manifest: Manifest, data: bytes) -> None:
        """Sets the chunks with a life, then takes it from them and names the blob in one step."""
        names = _chunk_keys(uri, manifest)
        with translate(self._client):
            for name, chunk in zip(names, manifest.cut(data), strict=True):
                self._client.eval(_CHUNK, 1, name, chunk, UNFINISHED_LIFE_S)
            before: Any = self._client.get(keys.blob(hash_in(uri)))
            whole: Any = self._client.eval(_WHOLE, 1 + len(names), keys.blob(hash_in(uri)), *names, encode_manifest(manifest))
        if not whole:
            raise StoreError(f"chunks of {uri} expired before the last was written; is the control plane that slow? publish again")
        self._drop(set(_chunk_keys(uri, decode_manifest(before or b""))) - set(names))

    def read(self, uri: str) -> bytes | None:
        """The value, or None."""
        with translate(self._client):
            value: Any = self._client.get(keys.blob(hash_in(uri)))
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
            held: Any = self._client.get(keys.blob(hash_in(uri)))
            self._client.delete(keys.blob(hash_in(uri)))
        self._drop(_chunk_keys(uri, decode_manifest(held or b"")))

    def _drop(self, names: set[str] | tuple[str, ...]) -> None:
        if names:
            with translate(self._client):
                self._client.unlink(*names)


def _chunk_keys(uri: str, manifest: Manifest | None) -> tuple[str, ...]:
    return tuple(keys.blob_chunk(hash_in(uri), name) for name in manifest.names) if manifest else ()
