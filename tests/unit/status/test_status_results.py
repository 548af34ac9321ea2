"""What a sweep tells the daemon of its study: kept in place of the last word, listed, shown, refused where it is of another study."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from memory_broker import MemoryBus, MemoryLedger

from azq.config import DaemonConfig
from azq.status.results import MOST_TRIALS, StudyReport, TrialReport
from daemon.api.app import create_app
from daemon.api.services import Services
from daemon.serve.health import Health


@pytest.fixture
def site() -> TestClient:
    bus = MemoryBus()
    services = Services(MemoryLedger(bus), bus, DaemonConfig(), Health(), Path("runs"), lambda: ["connect_four"])
    return TestClient(create_app(services), base_url="http://127.0.0.1")


def report(name: str = "rates", trials: int = 3) -> dict[str, object]:
    rows = [TrialReport(number=each, state="complete", value=each / 10, settings={"network.blocks": each}) for each in range(trials)]
    told = StudyReport(study=name, game="connect_four", metric="errors", best=rows[0] if rows else None, trials=rows, until="games=9")
    return told.model_dump(mode="json")


def test_the_last_word_of_each_study_is_kept(site: TestClient) -> None:
    assert site.get("/v1/studies").json() == []
    for trials in (1, 3):
        assert site.put("/v1/studies/rates", json=report(trials=trials)).status_code == 204
    assert site.put("/v1/studies/other", json=report("other", 0)).status_code == 204
    listed = {row["study"]: row["best"] and row["best"]["value"] for row in site.get("/v1/studies").json()}
    assert listed == {"rates": 0.0, "other": None}
    assert all("trials" not in row for row in site.get("/v1/studies").json())
    shown = site.get("/v1/studies/rates").json()
    assert [row["settings"] for row in shown["trials"]] == [{"network.blocks": each} for each in range(3)]
    assert shown["sent_ms"] > 0


def test_what_is_no_report_of_the_study_is_refused(site: TestClient) -> None:
    assert "other" in site.put("/v1/studies/rates", json=report("other")).json()["detail"]
    many = {**report(), "trials": [{"number": 0, "state": "complete"}] * (MOST_TRIALS + 1)}
    assert site.put("/v1/studies/rates", json=many).status_code == 422
    assert site.put("/v1/studies/a b", json=report("a b")).status_code == 422
    assert site.put("/v1/studies/rates", json={**report(), "colour": "red"}).status_code == 422
    assert site.get("/v1/studies/rates").status_code == 404
