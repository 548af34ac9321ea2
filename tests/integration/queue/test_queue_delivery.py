"""Jobs through a real broker into a real Celery worker, and what publishers hear of a broker that fails."""

from __future__ import annotations

import json
import os
import signal
import zlib
from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

import pytest
from queue_worker import start_worker
from waiting import PATIENCE_S, until

from azq.bus.embedded import EmbeddedServer
from azq.errors import BrokerRefused, BrokerUnavailable
from azq.ledger import Ledger
from azq.ledger.types import JobState
from azq.queue import make_app, publish
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord


def message(content: bytes, **changes: Any) -> bytes:
    """A task as kombu writes it, but for some parts."""
    properties = {"delivery_tag": "t", "delivery_info": {"exchange": "", "routing_key": ""}, "body_encoding": "base64"}
    task = {"body": b64encode(content).decode(), "headers": {"task": "azq.eval", "id": "r:1:1"}, "properties": properties}
    return json.dumps(task | {"content-type": "application/x-msgpack", "content-encoding": "binary"} | changes).encode()


BOMB = zlib.compress(bytes(1 << 20))
JUNK = (
    *(
        b"x",
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 2000,
        b'{"properties": 1}',
        message(b"", properties={"delivery_tag": 1}),
        message(b"", headers=[]),
    ),
    *(message(BOMB, headers={"task": "azq.eval", "id": "r:1:1", "compression": kind}) for kind in ("application/x-gzip", "x")),
    message(bytes(100_000)),
    message(b"", properties={"delivery_tag": "t", "delivery_info": {}, "body_encoding": "base65"}),
    message(b"", body="?"),
    message(b"", headers={"task": ["azq.eval"], "id": 1}),
    message(b"", headers={"task": "azq.eval"}),
    message(b"", headers={"task": "azq.eval", "id": {}, "eta": [], "expires": {}}),
    json.dumps("x" * 1_000_000).encode(),
)


@pytest.fixture
def ledger(broker):
    client = connect(broker.control_url)
    ledger = Ledger(client)
    ledger.create_run(RunRecord("r", b"{}", {}, "x", 1))
    yield ledger
    client.close()


@pytest.fixture
def own_server(tmp_path):
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    client = connect(server.url)
    ledger = Ledger(client)
    ledger.create_run(RunRecord("r", b"{}", {}, "x", 1))
    yield server, ledger
    client.close()
    server.stop()


def test_jobs_reach_the_workers_of_their_tag_once(broker, ledger, tmp_path):
    app = make_app(broker.control_url)
    mine = [ledger.enqueue(Job("", "r", kind, "jarvis", priority=priority)) for kind in (Kind.SELFPLAY, Kind.EVAL) for priority in (6, 0)]
    others = ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    for view in [*mine, *mine, others]:  # each of mine twice: the ledger lets one through
        publish(app, view)
        ledger.mark_published(view.job.job_id, view.attempt)
    log = tmp_path / "worker.log"
    worker = start_worker(broker.control_url, "selfplay.jarvis,eval.jarvis", log)
    try:
        until(lambda: all(ledger.job(view.job.job_id).state is JobState.DONE for view in mine))
        client = connect(broker.control_url)
        until(lambda: client.hlen("azq.unacked") == 0)
        app.control.broadcast("shutdown")  # whoever reaches the broker could say so
        for junk in JUNK:
            client.lpush("azq.eval.jarvis", junk)
        late = ledger.enqueue(Job("", "r", Kind.EVAL, "jarvis"))
        publish(app, late)
        until(lambda: ledger.job(late.job.job_id).state is JobState.DONE)
        until(lambda: client.hlen("azq.unacked") == client.llen("azq.eval.jarvis") == 0)
        assert worker.poll() is None
        assert client.pubsub_numsub("azq./0.celery.pidbox")[0][1] == client.pubsub_numpat() == 0
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)
    assert ledger.job(others.job.job_id).state is JobState.QUEUED
    assert client.xlen("azq:{r}:results") == len([*mine, late])
    held: list[Any] = client.keys("*")
    stray = [key for key in held if not key.startswith((b"azq:", b"azq."))]
    assert stray == [], "Celery's keys carry the prefix too"
    client.close()
    said = log.read_text()
    assert "selfplay.jarvis" in said
    assert said.count("message_refused") == len(JUNK)
    assert "Traceback" not in said
    assert urlsplit(broker.control_url).password not in said


def test_urgent_jobs_come_first(broker, ledger):
    app = make_app(broker.control_url)
    for priority in (9, 0, 6, 3):
        publish(app, ledger.enqueue(Job("", "r", Kind.EVAL, "cpu", priority=priority)))
    client = connect(broker.control_url)
    lists = {key for key in client.keys("azq.eval.cpu*") if client.type(key) == b"list"}
    client.close()
    assert lists == {b"azq.eval.cpu", b"azq.eval.cpu\x06\x163", b"azq.eval.cpu\x06\x166", b"azq.eval.cpu\x06\x169"}


def test_nobody_there_is_said_without_the_password(own_server):
    server, ledger = own_server
    app = make_app(server.url)
    view = ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    server.stop()
    with pytest.raises(BrokerUnavailable, match=r"broker at unix:///.*does not take job r:1") as caught:
        publish(app, view)
    assert urlsplit(server.url).password not in str(caught.value)


def test_a_broker_that_came_back_takes_jobs_again(own_server):
    server, ledger = own_server
    app = make_app(server.url)
    view = ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    publish(app, view)
    server.stop()
    server.start()
    publish(app, view)
    client = connect(server.url)
    assert client.llen("azq.selfplay.cpu\x06\x166") == 2
    client.close()


def test_a_frozen_broker_does_not_hold_a_publisher_for_ever(own_server):
    server, ledger = own_server
    app = make_app(server.url, socket_timeout_s=0.5)
    view = ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    publish(app, view)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BrokerUnavailable):
            publish(app, view)
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_a_wrong_password_is_refused(own_server):
    server, ledger = own_server
    view = ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    app = make_app(f"unix://:wrong-secret@{urlsplit(server.url).path}")
    with pytest.raises(BrokerRefused, match="refuses the password") as caught:
        publish(app, view)
    assert "wrong-secret" not in str(caught.value)
