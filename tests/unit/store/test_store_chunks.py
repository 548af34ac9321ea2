"""Large blobs in chunks: whole or absent, found by any reader, and nothing left behind."""

from __future__ import annotations

import hashlib
import os
import uuid
from typing import Any

import pytest

from azq.errors import StoreError, WeightsError
from azq.store import open_store
from azq.store.chunks import MAGIC, Manifest, decode_manifest, encode_manifest, manifest_of
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
        (2**62, 2**62, False),
    ],
)
def test_a_manifest_promises_at_most_8_gib_in_100000_chunks(size, chunk_bytes, read):
    manifest = Manifest(size, chunk_bytes)
    assert decode_manifest(encode_manifest(manifest)) == (manifest if read else None)


@pytest.mark.parametrize(
    "data", [b"", b"weights", MAGIC, MAGIC + b"{}", MAGIC + b'{"size":-1,"chunk_bytes":1}', MAGIC + b'{"size":9,"chunk_bytes":0}']
)
def test_other_bytes_are_no_manifest(data):
    assert decode_manifest(data) is None


class Site:
    """A control plane with its raw keys laid open; `names` are those of chunks and blobs alike."""

    def __init__(self, url, folder):
        self.client = connect(url)
        self._folder = folder

    def store(self, chunk_bytes=CHUNK):
        return open_store("redis", directory=self._folder, client=self.client, chunk_bytes=chunk_bytes)

    def names(self):
        keys: list[Any] = self.client.keys("azq:*blob*")
        return sorted(key.decode() for key in keys)


@pytest.fixture
def site(broker, tmp_path):
    site = Site(broker.control_url, tmp_path)
    yield site
    site.client.close()


def test_a_large_blob_is_kept_in_chunks_and_read_whole(site):
    data = os.urandom(5 * CHUNK + 7)
    sha256, uri = site.store().put(data)
    assert len(site.names()) == 7
    assert max(len(site.client.get(name)) for name in site.names()) == CHUNK
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
    site.client.set(chunk, os.urandom(CHUNK))
    with pytest.raises(WeightsError, match="is damaged"):
        site.store().get(uri, sha256)
    site.client.delete(chunk)
    with pytest.raises(StoreError, match="lacks 1 of its 3 chunks"):
        site.store().get(uri, sha256)
    site.store().put(data)
    assert site.store().get(uri, sha256) == data


def test_no_more_of_a_chunk_is_read_than_the_manifest_says(site):
    data = os.urandom(3 * CHUNK - 1)
    sha256, uri = site.store().put(data)
    for name in site.names():
        if "-0000" in name:
            site.client.set(name, site.client.get(name) + bytes(100 * CHUNK))
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


def test_a_writer_that_dies_between_chunks_leaves_no_blob_and_its_rest_expires(site, monkeypatch):
    client, store = site.client, site.store()
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


def test_publishing_again_gives_no_life_to_chunks_of_a_whole_blob(site, monkeypatch):
    """A second writer that dies half way must not let the first one's chunks expire."""
    client, store = site.client, site.store()
    data = os.urandom(2 * CHUNK)
    sha256, _ = store.put(data)
    die_in_third_write(client, monkeypatch)
    with pytest.raises(Death):
        store.put(data)
    assert [client.ttl(name) for name in client.keys("azq:*blob*")] == [-1, -1, -1]
    assert client.exists(keys.blob(sha256))


def test_chunks_that_an_earlier_version_wrote_behind_fsspec_are_read(tmp_path):
    import fsspec

    data, url, files = os.urandom(2 * CHUNK + 1), f"memory://{uuid.uuid4().hex}", fsspec.filesystem("memory")
    manifest, sha256 = Manifest(len(data), CHUNK), hashlib.sha256(data).hexdigest()
    uri = f"{url}/{sha256}.safetensors"
    files.pipe_file(uri, encode_manifest(manifest))
    for name, chunk in zip(manifest.names, manifest.cut(data), strict=True):
        files.pipe_file(f"{uri}.chunks/{name}", bytes(chunk) + bytes(CHUNK))
    store = open_store(url, directory=tmp_path)
    assert store.get(uri, sha256) == data
    files.rm_file(f"{uri}.chunks/{manifest.names[1]}")
    with pytest.raises(StoreError, match="lacks 1 of its 3 chunks"):
        store.get(uri, sha256)


def test_a_blob_and_its_chunks_share_a_slot_of_a_cluster():
    from redis.crc import key_slot

    sha256 = "ab" * 32
    assert key_slot(keys.blob(sha256).encode()) == key_slot(keys.blob_chunk(sha256, "1024-00003").encode())
