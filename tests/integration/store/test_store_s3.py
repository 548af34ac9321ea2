"""The store on S3: a local server, good days and bad ones."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import httpx2
import numpy as np
import pytest
from replay_games import frame
from waiting import PATIENCE_S, until

from azq import games
from azq.bus.redis import RedisBus
from azq.config import NetworkConfig, RunSections, StoreConfig, dump_run
from azq.errors import MissingExtra, StoreError
from azq.inference.ask.client import StreamEvaluator
from azq.learner.publish import Publisher
from azq.learner.replication.downloader import Downloader
from azq.learner.replication.remote_index import find_run, open_run_prefix, read_record
from azq.learner.replication.uploader import Uploader
from azq.ledger import Ledger
from azq.nets import NetSpec, WeightsMeta, build, to_bytes
from azq.replay.segments import LogEntry, SegmentLog
from azq.store import open_store
from azq.wire.connect import connect
from azq.wire.messages import RunRecord

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")

BUCKET = "weights"
SECRET = "wJalrXUtnFEMI-secret-of-the-test"


class S3:
    """A local S3 server with one bucket."""

    def __init__(self, monkeypatch, tmp_path):
        self._server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self._folder = tmp_path
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "AKIATEST",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        httpx2.post(f"{self.endpoint}/moto-api/reset")
        assert httpx2.put(f"{self.endpoint}/{BUCKET}").status_code == 200

    def store(self, bucket=BUCKET, **settings):
        url = f"s3://{bucket}/azq/run"
        return open_store(StoreConfig(url=url, **settings), directory=self._folder)

    def objects(self):
        text = httpx2.get(f"{self.endpoint}/{BUCKET}?list-type=2").text
        return [part.split("</Key>")[0] for part in text.split("<Key>")[1:]]

    def stop(self):
        if self._server is not None:
            self._server.stop()
            self._server = None


@pytest.fixture
def s3(monkeypatch, tmp_path):
    import fsspec
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    server = S3(monkeypatch, tmp_path)
    yield server
    server.stop()
    fsspec.asyn.reset_lock()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("size", [0, 7, 300_003])
def test_what_was_put_is_got_and_deleted(s3, size):
    data = os.urandom(size)
    sha256, uri = s3.store().put(data)
    assert uri == f"s3://{BUCKET}/azq/run/{sha256}.safetensors"
    assert s3.store().get(uri, sha256) == data
    assert len(s3.objects()) == 1
    assert s3.store().put(data) == (sha256, uri)
    s3.store().delete(uri)
    s3.store().delete(uri)
    assert s3.objects() == []
    with pytest.raises(StoreError, match="no blob at"):
        s3.store().get(uri, sha256)


def test_the_endpoint_and_the_credentials_may_be_options(s3, monkeypatch):
    options = {"endpoint_url": s3.endpoint, "key": "AKIATEST", "secret": SECRET}
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store = s3.store(options=options)
    sha256, uri = store.put(b"weights")
    assert store.get(uri, sha256) == b"weights"
    assert SECRET not in f"{StoreConfig(options=options)} {StoreConfig(options=options).model_dump_json()}"


def test_a_missing_bucket_is_named_and_never_made(s3):
    with pytest.raises(StoreError, match=r"cannot write s3://nowhere/.*create the bucket"):
        s3.store("nowhere").put(b"weights")
    assert httpx2.head(f"{s3.endpoint}/nowhere").status_code == 404


def test_wrong_credentials_are_named_without_being_told(s3, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET[::-1])
    httpx2.post(f"{s3.endpoint}/moto-api/reset-auth", content=b"0")
    try:
        with pytest.raises(StoreError, match=r"cannot write s3://.*AWS_ACCESS_KEY_ID") as caught:
            s3.store().put(b"weights")
    finally:
        httpx2.post(f"{s3.endpoint}/moto-api/reset-auth", content=b"1000000000")
    assert SECRET[::-1] not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_credentials_at_all_are_named(s3, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreError, match="credentials"):
        s3.store().put(b"weights")


def test_a_server_that_is_gone_is_an_error(s3):
    sha256, uri = s3.store().put(b"weights")
    s3.stop()
    for call in (lambda: s3.store().put(b"other"), lambda: s3.store().get(uri, sha256), lambda: s3.store().delete(uri)):
        with pytest.raises(StoreError, match=r"cannot (write|read|delete) s3://"):
            call()


def test_a_server_that_says_nothing_is_given_up_after_the_stores_time(s3, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        monkeypatch.setattr("azq.store.objects.TIMEOUT_S", 1.0)
        with pytest.raises(StoreError, match="nothing came for 1 s"):
            s3.store().put(b"weights")


def test_a_run_is_kept_in_a_bucket_and_fetched_from_it(s3, tmp_path):
    """Games and a checkpoint in extents, a bucket that goes away in the middle and comes back, and another host."""
    settings, record, key = StoreConfig(url=f"s3://{BUCKET}/azq"), RunRecord("a", b"{}", {}, str(tmp_path), 1), b"key"
    prefix = open_run_prefix(settings, record, lambda: key)
    assert prefix is not None
    here, there = tmp_path / "here", tmp_path / "there"
    log, rules = SegmentLog(here / "segments", "tic_tac_toe", roll_bytes=8000), games.load("tic_tac_toe")
    uploader = Uploader(prefix, here, log, 1, most_bytes=4096)
    (here / "checkpoints").mkdir()
    (here / "checkpoints" / "000000000007.ckpt").write_bytes(checkpoint := os.urandom(10_000))
    for uid in range(1, 101):
        log.append([LogEntry(uid, 5, frame(rules, uid))])
        if uid == 50:
            nowhere: dict[str, Any] = {"endpoint_url": "http://127.0.0.1:9"}
            uploader.prefix = open_run_prefix(settings.model_copy(update={"options": nowhere}), record, lambda: key)
            uploader.hurry()
            uploader.turn()
            assert uploader.away
            uploader.prefix, before = prefix, uploader.uploaded
        elif uid % 10 == 0:
            uploader.finish(20.0)
    until(lambda: not uploader.turn() and not uploader.away, "the bucket to be tried again")
    uploader.finish(20.0)
    assert uploader.uploaded == log.end > before
    assert len(prefix.names("segments")) < 40
    Downloader(prefix, there, 1e9).run()
    for folder in ("segments", "checkpoints"):
        kept = {path.name: path.read_bytes() for path in (here / folder).iterdir()}
        assert {path.name: path.read_bytes() for path in (there / folder).iterdir()} == kept
    assert (there / "checkpoints" / "000000000007.ckpt").read_bytes() == checkpoint
    uploader.record = record
    uploader.finish(20.0)
    assert read_record(find_run(settings, "a", key)) == record


def test_without_s3fs_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(importlib.import_module("fsspec.registry")._registry, "s3", raising=False)
    with pytest.raises(MissingExtra, match=r"azq\[s3\]"):
        open_store("s3://bucket/prefix", directory=tmp_path)


WORKER = """
import sys
from azq.config import load
from azq.process.start import run_main
from workers.inference import main
sys.exit(run_main("inference", lambda: main(load(None, sys.argv[1:]))))
"""


@pytest.fixture
def worker(s3, broker, tmp_path):
    """An inference worker of its own process that knows the bucket; its log is shown where the test failed."""
    address = json.dumps({"control_url": broker.control_url, "data_url": broker.data_url})
    variables = {**os.environ, **s3.environment, "AZQ_BROKER": address, "AZQ_HOME": str(tmp_path)}
    command = [sys.executable, "-c", WORKER, "inference.device=cpu", "inference.threads=1", f"store.url=s3://{BUCKET}/azq/run"]
    process = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
    yield process
    process.terminate()
    print(process.communicate(timeout=PATIENCE_S)[1])


def test_a_learner_publishes_to_a_bucket_and_an_inference_worker_loads_from_it(s3, broker, worker, tmp_path):
    run, network = "bucket", NetworkConfig(blocks=2, channels=32)
    rules = games.load("connect_four")
    spec = NetSpec.of(rules)
    control = connect(broker.control_url)
    Ledger(control).create_run(RunRecord(run, json.dumps(dump_run(RunSections(network=network))).encode(), {}, str(tmp_path), 0))
    publisher = Publisher(RedisBus(control), s3.store(), run)
    client = StreamEvaluator(RedisBus(broker.data_url), run, "c1", num_actions=spec.num_actions)
    leaves = np.zeros((4, spec.packed_size), np.uint8)
    for version in (1, 2):
        data = to_bytes(
            build(network, spec, seed=version), WeightsMeta("connect_four", version, 0, network=network.model_dump(mode="json"))
        )
        assert publisher.publish(data, publisher.next_version(), step=version).uri.startswith("s3://")
        deadline_s, answer = time.monotonic() + PATIENCE_S, None
        while (answer is None or answer.weight_version < version) and time.monotonic() < deadline_s:
            answer = client.result(client.submit(leaves), timeout_s=5.0)
        assert answer is not None
        assert answer.weight_version == version
    client.close()
    control.close()
