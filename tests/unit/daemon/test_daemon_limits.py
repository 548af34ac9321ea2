"""How much may be asked, and on which socket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rest_site import RestSite

from azq.config import DaemonConfig
from azq.config.access import check_tls
from azq.errors import ConfigError
from azq.ledger.types import RunState
from azq.status.brokers import Plane
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import ModelEvent, RunRecord, WeightEvent
from daemon.api.weights import READ_AT_ONCE, weights_in

JOB = {"run": "r0", "kind": "selfplay", "games": 1}


class FakePlane(Plane):
    """Notes the runs that it was told to forget."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def forget(self, run: str) -> None:
        self.forgotten.append(run)


class Shelf:
    """A store that notes what is deleted from it."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, uri: str) -> None:
        self.deleted.append(uri)


class Front(RestSite):
    """A REST interface with room for little, and a worker."""

    def __init__(self, **options: Any) -> None:
        self.planes, self.shelf = (FakePlane(), FakePlane()), Shelf()
        super().__init__(doubles={"planes": self.planes, "store_of": lambda *_: self.shelf, **options})
        self.beat("w1", "selfplay.cpu")


def assert_full(answer: Any, what: str) -> None:
    assert (answer.status_code, answer.json()["type"]) == (429, "urn:azq:error:TooManyRequests")
    assert what in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0


def test_no_more_runs_start_than_may_run() -> None:
    front = Front(max_runs=2)
    assert [front.create(f"r{number}").status_code for number in range(2)] == [201, 201]
    assert_full(front.create("r2"), "2 runs are running")
    assert front.http.get("/v1/runs/r2").status_code == 404
    assert front.create("r0").status_code in (409, 429)
    front.http.post("/v1/runs/r0/pause")
    assert front.create("r2").status_code == 201
    refused = front.http.post("/v1/runs/r0/resume", json={"until": {"games": 5}})
    assert_full(refused, "2 runs are running")
    assert front.http.get("/v1/runs/r0").json()["until"] == {}


def test_a_request_sent_again_gets_its_first_answer_however_full_it_is() -> None:
    front = Front(max_runs=1, max_queued_jobs=1)
    for _ in range(2):
        assert front.create("r0", {"Idempotency-Key": "k"}).status_code == 201
        assert front.http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "j"}).status_code == 201


def test_no_more_jobs_wait_than_may_over_all_runs() -> None:
    front = Front(max_queued_jobs=3)
    front.create("r0")
    front.create("r1")
    jobs = [front.http.post("/v1/jobs", json={**JOB, "run": run}) for run in ("r0", "r1", "r0")]
    assert [job.status_code for job in jobs] == [201, 201, 201]
    assert_full(front.http.post("/v1/jobs", json=JOB), "3 jobs wait or run")
    front.http.post(f"/v1/jobs/{jobs[0].json()['job_id']}/revoke")
    assert front.http.post("/v1/jobs", json=JOB).status_code == 201


def test_requests_at_once_do_not_pass_the_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front(max_runs=3)
    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda number: front.create(f"r{number}").status_code, range(16)))
    assert sorted(codes) == [201] * 3 + [429] * 13


# --- deleting -------------------------------------------------------------------------------------------------------


def weights(front: Front, run: str, version: int, uri: str) -> None:
    front.bus.publish(keys.weights(run), encode(WeightEvent(run, version, "a" * 64, uri, 1, 1)))


def test_a_run_is_deleted_with_the_weights_that_are_its_alone() -> None:
    front = Front()
    for name in ("mine", "other"):
        front.create(name)
    for run, version, uri in (("mine", 1, "redis:aa"), ("mine", 2, "redis:bb"), ("mine", 3, "file:cc"), ("other", 1, "redis:bb")):
        weights(front, run, version, uri)
    front.bus.publish(keys.weights("mine"), b"garbage")
    front.bus.publish(keys.onnx("mine"), encode(ModelEvent(1, "a" * 64, "redis:dd", 9, b"", b"", b"", 0.0)))
    refused = front.http.delete("/v1/runs/mine")
    assert (refused.status_code, "pause or finish" in refused.json()["detail"]) == (409, True)
    front.http.post("/v1/runs/mine/finish")
    for _ in range(2):
        answer = front.http.delete("/v1/runs/mine")
        assert (answer.status_code, answer.content) == (204, b"")
    assert sorted(front.shelf.deleted) == ["redis:aa", "redis:dd"]
    assert front.bus.length(keys.onnx("mine")) == 0
    assert [run["name"] for run in front.http.get("/v1/runs").json()] == ["other"]
    assert [plane.forgotten for plane in front.planes] == [[], ["mine"]]
    assert front.bus.length(keys.weights("mine")) == 0
    assert front.create("mine").status_code == 201


def test_a_run_whose_learner_lives_is_kept() -> None:
    front = Front()
    front.create("mine")
    front.http.post("/v1/runs/mine/pause")
    front.ledger.take_learner("mine", "learner@h:9", 60.0)
    refused = front.http.delete("/v1/runs/mine")
    assert (refused.status_code, "learner@h:9" in refused.json()["detail"]) == (409, True)
    assert front.ledger.run("mine").state is RunState.PAUSED


def test_all_weights_are_looked_through() -> None:
    front = Front()
    front.ledger.create_run(RunRecord("mine", b"{}", {}, "folder", 1))
    for version in range(READ_AT_ONCE + 5):
        weights(front, "mine", version + 1, f"redis:{version}")
    assert len(weights_in(front.bus, "mine")) == READ_AT_ONCE + 5


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.5", "first"])
def test_plaintext_beyond_loopback_has_to_be_asked_for(host: str) -> None:
    with pytest.raises(ConfigError, match=r"daemon\.plaintext = true"):
        check_tls(DaemonConfig(host=host))
    check_tls(DaemonConfig(host=host, plaintext=True))
