"""A process's log and threads over REST: from whoever answers, and in clear words from who does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from azq.bus.memory import MemoryBus
from azq.config import DaemonConfig
from azq.ledger import MemoryLedger
from azq.process.answers import Answers
from azq.process.heartbeat import Presence
from azq.status import asking
from daemon.api.app import create_app
from daemon.api.services import Services
from daemon.serve.health import Health

WORKER = "selfplay.cpu+eval.cpu-7@north"


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
def http(bus: MemoryBus, tmp_path: Path) -> TestClient:
    services = Services(MemoryLedger(bus), bus, DaemonConfig(), Health(), tmp_path, list)
    Presence("selfplay", life_s=600.0, worker=WORKER).beat(bus)
    return TestClient(create_app(services), base_url="http://127.0.0.1", raise_server_exceptions=False)


def test_a_process_tells_its_threads(http: TestClient, bus: MemoryBus) -> None:
    with Answers(lambda: bus, WORKER):
        said = http.get(f"/v1/workers/{WORKER}/stack").json()
    assert said["worker"] == WORKER
    assert said["lines"][0] == "thread MainThread"


def test_a_log_has_no_more_lines_than_wanted_and_not_any_number_of_them(http: TestClient, bus: MemoryBus) -> None:
    with Answers(lambda: bus, WORKER):
        assert len(http.get(f"/v1/workers/{WORKER}/log?lines=1").json()["lines"]) <= 1
    assert http.get(f"/v1/workers/{WORKER}/log?lines=0").status_code == 422


def test_one_that_is_silent_is_a_timeout_of_the_gateway_and_one_that_is_not_there_is_not_found(
    http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "WITHIN_S", 0.05)
    silent = http.get(f"/v1/workers/{WORKER}/stack")
    assert (silent.status_code, silent.json()["type"]) == (504, "urn:azq:error:HostError")
    assert "did not answer" in silent.json()["detail"]
    assert http.get("/v1/workers/nobody/log").status_code == 404
