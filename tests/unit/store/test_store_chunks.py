"""Large blobs in chunks: whole or absent, found by any reader, and nothing left behind."""

from __future__ import annotations

import os
import uuid
from functools import partial
from typing import Any

import pytest

from azq.errors import StoreError, WeightsError
from azq.store import objects, open_store
from azq.store.chunks import MAGIC, MAX_BLOB_BYTES, Manifest, decode_manifest, encode_manifest, manifest_of
from azq.wire import keys
from azq.wire.connect import connect

CHUNK = 1024


def test_the_cuts_cover_a_blob_and_nothing_else():
    for size in (1025, 2048, 2049, 10_000):
        data = os.urandom(size)
        manifest = manifest_of(data, CHUNK)
        assert manifest is not None
        assert b"".join(manifest.cut(data)) == data
        assert len(manifest.names) == len(list(manifest.cut(data))) == len(set(manifest.names))
        assert decode_manifest(encode_manifest(manifest)) == manifest
    assert manifest_of(bytes(CHUNK), CHUNK) is None


def test_the_last_chunk_is_what_is_left():
    manifest = manifest_of(bytes(2049), CHUNK)
    assert manifest == Manifest(2049, 1024)
    assert manifest.names == ("1024-00000", "1024-00001", "1024-00002")
    assert manifest.lengths == (1024, 1024, 1)
    assert [len(chunk) for chunk in manifest.cut(bytes(2049))] == [1024, 1024, 1]
    assert manifest_of(bytes(1025), CHUNK).lengths == (1024, 1)


@pytest.mark.parametrize(
    ("size", "chunk_bytes", "read"),
    [
        (1, 1, True),
        (0, 1, False),
        (8_589_934_592, 2**20, True),
        (8_589_934_593, 2**20, False),
        (100_000, 1, True),
        (100_001, 1, False),
        (200_000, 2, True),
    ],
)
def test_a_manifest_promises_at_most_8_gib_in_100000_chunks(size, chunk_bytes, read):
    manifest = Manifest(size, chunk_bytes)
    assert decode_manifest(encode_manifest(manifest)) == (manifest if read else None)


@pytest.mark.parametrize(
    ("size", "chunk_bytes"), [(2**60, 2**20), (2**60, 2**60), (MAX_BLOB_BYTES + 1, 2**20), (2**30, 1), (2**62, 2**62), (100_001, 1)]
)
def test_nobody_makes_room_for_a_manifest_that_promises_too_much(size, chunk_bytes):
    assert decode_manifest(encode_manifest(Manifest(size, chunk_bytes))) is None


@pytest.mark.parametrize(
    "data", [b"", b"weights", MAGIC, MAGIC + b"{}", MAGIC + b'{"size":-1,"chunk_bytes":1}', MAGIC + b'{"size":9,"chunk_bytes":0}']
)
def test_other_bytes_are_no_manifest(data):
    assert decode_manifest(data) is None


class Site:
    """A place with its raw keys or files laid open; `keys` are those of chunks and blobs alike."""

    def __init__(self, kind, request, folder):
        self._folder = folder
        self._client = None
        if kind == "redis":
            self._client = connect(request.getfixturevalue("broker").control_url)
            self.url = "redis"
        else:
            self.url = f"memory://{uuid.uuid4().hex}"

    def store(self, chunk_bytes=CHUNK):
        return open_store(self.url, directory=self._folder, client=self._client, chunk_bytes=chunk_bytes)

    def files(self):
        import fsspec

        return fsspec.filesystem("memory")

    def names(self):
        if self._client:
            held: list[Any] = self._client.keys("azq:*blob*")
            return sorted(name.decode() for name in held)
        return sorted(self.files().find(self.url.removeprefix("memory:/")))

    def read(self, name):
        return self._client.get(name) if self._client else self.files().cat_file(name)

    def write(self, name, data):
        self._client.set(name, data) if self._client else self.files().pipe_file(name, data)

    def drop(self, name):
        self._client.delete(name) if self._client else self.files().rm_file(name)

    def close(self):
        if self._client:
            self._client.close()


@pytest.fixture(params=["redis", "memory://"])
def site(request, tmp_path):
    made = Site(request.param, request, tmp_path)
    yield made
    made.close()


def test_a_large_blob_is_kept_in_chunks_and_read_whole(site):
    data = os.urandom(5 * CHUNK + 7)
    sha256, uri = site.store().put(data)
    assert len(site.names()) == 7
    assert max(len(site.read(name)) for name in site.names()) == CHUNK
    for chunk_bytes in (CHUNK, 2 * CHUNK, 100 * CHUNK):
        assert site.store(chunk_bytes).get(uri, sha256) == data
    assert site.store().put(data) == (sha256, uri)
    assert len(site.names()) == 7


def test_deleting_takes_the_chunks_along(site):
    sha256, uri = site.store().put(os.urandom(3 * CHUNK))
    site.store().delete(uri)
    site.store().delete(uri)
    assert site.names() == []
    with pytest.raises(StoreError, match="no blob at"):
        site.store().get(uri, sha256)


def test_a_lost_or_damaged_chunk_is_noticed_and_mended_by_publishing_again(site):
    data = os.urandom(3 * CHUNK)
    sha256, uri = site.store().put(data)
    chunk = next(name for name in site.names() if name.endswith("-00001"))
    site.write(chunk, os.urandom(CHUNK))
    with pytest.raises(WeightsError, match="is damaged"):
        site.store().get(uri, sha256)
    site.drop(chunk)
    with pytest.raises(StoreError, match="lacks 1 of its 3 chunks"):
        site.store().get(uri, sha256)
    site.store().put(data)
    assert site.store().get(uri, sha256) == data


def test_no_more_of_a_chunk_is_read_than_the_manifest_says(site):
    data = os.urandom(3 * CHUNK - 1)
    sha256, uri = site.store().put(data)
    for name in site.names():
        if "-0000" in name:
            site.write(name, site.read(name) + bytes(100 * CHUNK))
    chunks = site.store()._place.storage.read_chunks(f"{sha256}.safetensors", Manifest(len(data), CHUNK))
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, CHUNK - 1]
    assert site.store().get(uri, sha256) == data


def test_a_blob_that_looks_like_a_manifest_is_itself(site):
    data = encode_manifest(Manifest(5, 2))
    sha256, uri = site.store().put(data)
    assert site.store().get(uri, sha256) == data


class Death(BaseException):
    """The writer's process ends here."""


def die_in_third_write(client, monkeypatch):
    calls, do = [], client.eval

    def dies(*args):
        calls.append(args)
        if len(calls) == 3:
            raise Death
        return do(*args)

    monkeypatch.setattr(client, "eval", dies)


def test_a_writer_that_dies_between_chunks_leaves_no_blob_and_its_rest_expires(broker, tmp_path, monkeypatch):
    client = connect(broker.control_url)
    store = open_store("redis", directory=tmp_path, client=client, chunk_bytes=CHUNK)
    data = os.urandom(4 * CHUNK)
    die_in_third_write(client, monkeypatch)
    with pytest.raises(Death):
        store.put(data)
    monkeypatch.undo()
    left = client.keys("azq:*blob*")
    assert len(left) == 2
    assert all(0 < client.ttl(name) <= 3600 for name in left)
    sha256, uri = store.put(data)
    assert all(client.ttl(name) == -1 for name in client.keys("azq:*blob*"))
    assert store.get(uri, sha256) == data
    client.close()


def test_publishing_again_gives_no_life_to_chunks_of_a_whole_blob(broker, tmp_path, monkeypatch):
    """A second writer that dies half way must not let the first one's chunks expire."""
    client = connect(broker.control_url)
    store = open_store("redis", directory=tmp_path, client=client, chunk_bytes=CHUNK)
    data = os.urandom(2 * CHUNK)
    sha256, _ = store.put(data)
    die_in_third_write(client, monkeypatch)
    with pytest.raises(Death):
        store.put(data)
    assert [client.ttl(name) for name in client.keys("azq:*blob*")] == [-1, -1, -1]
    assert client.exists(keys.blob(sha256))
    client.close()


def test_chunks_of_a_dead_writer_are_swept_by_the_next_and_fresh_ones_are_not(tmp_path, monkeypatch):
    url = f"memory://{uuid.uuid4().hex}"
    store = partial(open_store, url, directory=tmp_path, chunk_bytes=CHUNK)
    write = objects.RemotePrefix.write

    def dies(self, uri, data):
        raise Death

    monkeypatch.setattr(objects.RemotePrefix, "write", dies)
    with pytest.raises(Death):
        store().put(os.urandom(3 * CHUNK))
    monkeypatch.setattr(objects.RemotePrefix, "write", write)
    import fsspec

    files, folder = fsspec.filesystem("memory"), url.removeprefix("memory:/")
    assert len(files.find(folder)) == 3
    store().put(os.urandom(2 * CHUNK))
    assert len(files.find(folder)) == 6
    monkeypatch.setattr(objects, "UNFINISHED_LIFE_S", -1.0)
    sha256, uri = store().put(os.urandom(2 * CHUNK))
    assert len(files.find(folder)) == 6, "two whole blobs of two chunks and a manifest each"
    store().get(uri, sha256)


def test_a_blob_and_its_chunks_share_a_slot_of_a_cluster():
    from redis.crc import key_slot

    sha256 = "ab" * 32
    assert key_slot(keys.blob(sha256).encode()) == key_slot(keys.blob_chunk(sha256, "1024-00003").encode())
