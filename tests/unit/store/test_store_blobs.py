"""One suite for every place a blob can be: whole, verified, deletable."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

import pytest

from azq.config import StoreConfig
from azq.errors import BrokerUnavailable, ConfigError, MissingExtra, StoreError, WeightsError
from azq.store import blobs, open_prefix, open_store
from azq.store.chunks import MAX_BLOB_BYTES
from azq.store.objects import FolderPrefix
from azq.wire.connect import connect
from azq.wire.messages import RunRecord


@pytest.fixture(params=["file", "redis", "file://", "memory://"])
def store(request, tmp_path):
    if request.param == "redis":
        client = connect(request.getfixturevalue("broker").control_url)
        yield open_store("redis", directory=tmp_path, client=client)
        client.close()
        return
    url = {"file": "file", "file://": f"file://{tmp_path / 'shared'}", "memory://": f"memory://{uuid.uuid4().hex}"}[request.param]
    yield open_store(url, directory=tmp_path / "weights")


@pytest.mark.parametrize("data", [b"", b"weights", os.urandom(300_000)])
def test_what_was_put_is_got(store, data):
    sha256, uri = store.put(data)
    assert sha256 == hashlib.sha256(data).hexdigest()
    assert store.get(uri, sha256) == data
    assert store.put(data) == (sha256, uri)
    assert store.get(uri, sha256) == data


def test_another_hash_is_damage(store):
    sha256, uri = store.put(b"weights")
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(WeightsError, match=f"is damaged: its hash is {sha256[:12]}, not {other[:12]};"):
        store.get(uri, other)


def test_a_deleted_blob_is_missing_and_deleting_again_is_harmless(store):
    sha256, uri = store.put(b"weights")
    store.delete(uri)
    store.delete(uri)
    with pytest.raises(StoreError, match="no blob at"):
        store.get(uri, sha256)


def test_a_reader_finds_a_blob_in_its_own_places_and_no_other(store, tmp_path):
    sha256, uri = store.put(b"weights")
    reader = open_store("file", directory=tmp_path / "weights", client=store._control_plane and store._control_plane.storage._client)
    if uri.startswith(("file:/", "memory:/")):
        with pytest.raises(StoreError, match=r"set store\.url alike"):
            reader.get(uri, sha256)
        with pytest.raises(StoreError, match=r"set store\.url alike"):
            reader.delete(uri)
    else:
        assert reader.get(uri, sha256) == b"weights"


SHA256 = hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize(
    "uri",
    [
        "http://169.254.169.254/{}.safetensors",
        "local:///etc/{}.safetensors",
        "file:///etc/{}.safetensors",
        "file://{base}/../{}.safetensors",
        "file://{base}/more/{}.safetensors",
        "file://{base}/{}",
        "file://{base}/{}.safetensors?x",
        "file://{base}//{}.safetensors",
        "simplecache::file://{base}/{}.safetensors",
        "file://{base}::http://h/{}.safetensors",
        "reference://::file://{base}/{}.safetensors",
        "file:/{}",
        "file:{}.safetensors",
        "redis:{}",
        "file:more/{}",
        "FILE:{}",
        " file:{}",
    ],
)
def test_no_other_uri_is_followed(uri, tmp_path, monkeypatch):
    import fsspec

    def never(*_: object, **__: object) -> None:
        raise AssertionError("asked for a file system")

    monkeypatch.setattr(fsspec.core, "url_to_fs", never)
    store = open_store(f"file://{tmp_path}", directory=tmp_path / "own")
    store.put(b"weights")
    said = uri.replace("{base}", str(tmp_path)).replace("{}", SHA256)
    for ask in (lambda: store.get(said, SHA256), lambda: store.delete(said)):
        with pytest.raises(StoreError):
            ask()
    assert store.get(f"file://{tmp_path}/{SHA256}.safetensors", SHA256) == b"weights"


def test_what_is_no_file_or_too_large_is_not_read(tmp_path):
    os.mkfifo(tmp_path / f"{SHA256}.safetensors")
    store = open_store("file", directory=tmp_path)
    with pytest.raises(StoreError, match="neither writes nor reads"):
        store.get(f"file:{SHA256}", SHA256)
    os.remove(tmp_path / f"{SHA256}.safetensors")
    with (tmp_path / f"{SHA256}.safetensors").open("wb") as file:
        file.truncate(MAX_BLOB_BYTES + 1)  # a hole: no bytes on disk
    with pytest.raises(StoreError, match="neither writes nor reads"):
        store.get(f"file:{SHA256}", SHA256)


def test_a_large_object_behind_fsspec_is_not_fetched(tmp_path, monkeypatch):
    import fsspec

    store = open_store(f"memory://{uuid.uuid4().hex}", directory=tmp_path)
    sha256, uri = store.put(b"weights")
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "size", lambda *_: MAX_BLOB_BYTES + 1)
    with pytest.raises(StoreError, match="neither writes nor reads"):
        store.get(uri, sha256)


def test_a_damaged_file_is_noticed(tmp_path):
    store = open_store("file", directory=tmp_path)
    sha256, uri = store.put(b"weights")
    [file] = tmp_path.iterdir()
    file.write_bytes(b"weightz")
    with pytest.raises(WeightsError, match="is damaged"):
        store.get(uri, sha256)
    store.put(b"weights")
    assert store.get(uri, sha256) == b"weights"


def test_the_largest_blob_is_kept_and_a_larger_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(blobs, "MAX_BLOB_BYTES", 7)
    store = open_store("file", directory=tmp_path)
    sha256, uri = store.put(b"weights")
    assert store.get(uri, sha256) == b"weights"
    with pytest.raises(StoreError, match="neither writes nor reads"):
        store.put(b"weights!")
    assert len(list(tmp_path.iterdir())) == 1


def test_weights_lie_in_the_runs_folder_or_on_another_host_below_its_home(tmp_path):
    home = Path("/nowhere/runs")
    assert blobs.weights_folder(RunRecord("ttt", b"{}", {}, str(tmp_path), 0), home) == tmp_path / "weights"
    for said in ("", str(tmp_path / "gone")):
        assert blobs.weights_folder(RunRecord("ttt", b"{}", {}, said, 0), home) == home / "ttt" / "weights"


def test_a_moved_folder_keeps_its_blobs(tmp_path):
    sha256, uri = open_store("file", directory=tmp_path / "one").put(b"weights")
    (tmp_path / "one").rename(tmp_path / "two")
    assert open_store("file", directory=tmp_path / "two").get(uri, sha256) == b"weights"


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    store = open_store("file", directory=tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match="No space left"):
        store.put(b"weights")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "weights").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        open_store("file", directory=tmp_path / "weights").put(b"x")


@pytest.mark.parametrize("uri", ["", "nonsense", "file:../../etc/passwd", "redis:abc", "file:" + "g" * 64])
def test_a_uri_that_names_no_blob_is_refused(uri, tmp_path):
    with pytest.raises((StoreError, ConfigError)):
        open_store("file", directory=tmp_path).get(uri, "0" * 64)


@pytest.mark.parametrize("url", ["nonsense", "", "nosuchscheme://bucket"])
def test_a_url_of_no_known_kind_is_a_setting(url, tmp_path):
    with pytest.raises(ConfigError, match=r"store\.url"):
        open_store(url, directory=tmp_path)


def test_a_url_with_a_password_is_refused_without_naming_it(tmp_path):
    with pytest.raises(ConfigError, match="user or password") as caught:
        open_store("s3://key:secret@bucket/prefix", directory=tmp_path)
    assert "secret" not in str(caught.value)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    import fsspec

    def missing(url: str, **_: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingExtra, match="s3fs"):
        open_store("s3://bucket/prefix", directory=tmp_path)


def test_redis_without_a_client_is_a_setting(tmp_path):
    with pytest.raises(ConfigError, match="control plane"):
        open_store("redis", directory=tmp_path)


def test_a_control_plane_that_is_gone_is_unavailable(tmp_path):
    from azq.wire.connect import open_client

    store = open_store("redis", directory=tmp_path, client=open_client("unix:///nowhere"))
    with pytest.raises(BrokerUnavailable):
        store.put(b"x")


def test_objects_in_a_folder_are_what_others_read(tmp_path):
    prefix = open_prefix(StoreConfig(url=f"file://{tmp_path}/store"), "runs/a.1")
    assert isinstance(prefix, FolderPrefix)
    assert prefix.names() == []
    prefix.write("a/b", b"1")
    prefix.write("claims/1", b"2")
    assert (prefix.names(), prefix.names("a"), prefix.read("a/b"), prefix.read("c")) == (["a/b", "claims/1"], ["a/b"], b"1", None)
    prefix.remove("a/b")
    prefix.remove("a/b")
    assert prefix.names() == ["claims/1"]


@pytest.mark.parametrize("url", ["file", "redis", "memory://x"])
def test_a_store_of_weights_alone_keeps_no_games(url):
    assert open_prefix(StoreConfig(url=url), "runs/a.1") is None
    assert open_prefix(StoreConfig(url="file:///x", keep="weights"), "runs/a.1") is None
    if "://" not in url:
        with pytest.raises(ConfigError, match="keeps weights alone"):
            open_prefix(StoreConfig(url=url, keep="all"), "runs/a.1")
