"""Jobs through a broker's TLS front into a real Celery worker; kombu alone would take any certificate."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_doubles import FrontProcess
from queue_worker import start_worker
from waiting import PATIENCE_S, until

from azq.bus import certificate
from azq.bus.embedded import EmbeddedServer
from azq.config.host import trusting
from azq.errors import BrokerUnavailable
from azq.ledger import Ledger
from azq.ledger.types import JobState
from azq.queue import make_app, publish
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord


@pytest.fixture
def fronted(tmp_path: Path) -> Iterator[FrontProcess]:
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    front = FrontProcess(server, tmp_path, port)
    yield front
    front.stop()
    server.stop()


def test_jobs_come_and_go_over_tls_and_over_a_front_that_was_killed(fronted: FrontProcess, tmp_path: Path) -> None:
    client = connect(fronted.url)
    ledger, app = Ledger(client), make_app(fronted.url)
    ledger.create_run(RunRecord("r", b"{}", {}, "x", 1))
    worker = start_worker(fronted.url, "selfplay.cpu", tmp_path / "worker.log")
    try:
        for killed in (False, True):
            if killed:
                fronted.kill()
                fronted.start()
            views = [ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu")) for _ in range(3)]
            for view in views:
                publish(app, view)
                ledger.mark_published(view.job.job_id, view.attempt)
            until(lambda views=views: all(ledger.job(view.job.job_id).state is JobState.DONE for view in views))
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)
    client.close()


def test_a_job_is_not_handed_to_a_broker_with_another_certificate(
    fronted: FrontProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(connect(fronted.url))
    ledger.create_run(RunRecord("r", b"{}", {}, "x", 1))
    view = ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    stranger = certificate.ensure(tmp_path / "stranger", "127.0.0.1")[0]
    for url in (trusting(fronted.plain_url, str(stranger)), fronted.plain_url):
        with pytest.raises(BrokerUnavailable, match="does not take job r:1"):
            publish(make_app(url), view)
    monkeypatch.setenv("SSL_CERT_FILE", str(fronted.certificate))  # nor where the system vouches for it, and the settings do not
    with pytest.raises(BrokerUnavailable, match="does not take job r:1"):
        publish(make_app(trusting(fronted.plain_url, str(stranger))), view)
