"""Lists in pages with filters, requests sent twice, goals changed, weights downloaded: over the doubles."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_site import RestSite

from azq.errors import InvalidRequest
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GradeResult, Job, MatchResult, MatchSpec, WeightEvent
from daemon.api.conventions import decode_cursor, encode_cursor


class Site(RestSite):
    """A REST interface whose clock the test sets."""

    def __init__(self, home: Path) -> None:
        self.now_ms = 1_000
        super().__init__(home, clock_ms=lambda: self.now_ms)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# --- pages ----------------------------------------------------------------------------------------------------------


def fill(site: Site, runs: int = 3, jobs: int = 7) -> list[str]:
    for run in range(runs):
        site.http.post("/v1/runs", json={"name": f"r{run}"})
    for number in range(jobs):
        site.now_ms += 10
        for run in range(runs):
            site.ledger.enqueue(Job("", f"r{run}", Kind.SELFPLAY if number % 2 else Kind.EVAL, "cpu" if number % 3 else "cuda"))
    return [f"r{run}:{number}" for run in range(runs) for number in range(jobs, 0, -1)]


@pytest.mark.parametrize("limit", [1, 2, 7, 20, 21, 1000])
def test_pages_of_jobs_join_to_the_whole_list_each_within_its_limit(site: Site, limit: int) -> None:
    expected = fill(site)
    pages = site.pages(f"/v1/jobs?limit={limit}")
    assert [job["job_id"] for page in pages for job in page] == expected
    assert all(0 < len(page) <= limit for page in pages)


def test_what_is_inserted_or_ends_between_two_pages_moves_nothing(site: Site) -> None:
    expected = fill(site)
    first = site.http.get("/v1/jobs?limit=10")
    site.ledger.enqueue(Job("", "r0", Kind.SELFPLAY, "cpu"))
    site.ledger.enqueue(Job("", "r1", Kind.SELFPLAY, "cpu"))
    site.ledger.cancel("r1:5")  # on the first page, where the cursor stands
    site.http.post("/v1/runs", json={"name": "a-run-before"})
    rest = site.pages(first.links["next"]["url"])
    assert [job["job_id"] for page in [first.json(), *rest] for job in page] == expected


def test_pages_keep_filters_and_skip_what_does_not_fit(site: Site) -> None:
    fill(site)
    pages = site.pages("/v1/jobs?kind=eval&tag=cpu&limit=2")
    assert [job["job_id"] for page in pages for job in page] == [f"r{run}:{number}" for run in range(3) for number in (5, 3)]
    since = site.http.get("/v1/jobs?run=r1&since=1060").json()
    assert [job["job_id"] for job in since] == ["r1:7", "r1:6"]


def test_jobs_by_state_find_ended_ones_without_being_asked_twice(site: Site) -> None:
    fill(site, runs=1)
    site.ledger.cancel("r0:3")
    assert [job["job_id"] for job in site.http.get("/v1/jobs?state=cancelled").json()] == ["r0:3"]
    assert len(site.http.get("/v1/jobs?state=queued").json()) == 6
    assert len(site.http.get("/v1/jobs?active=false").json()) == 7


def test_runs_by_state_and_game_in_pages(site: Site) -> None:
    for number in range(5):
        site.http.post("/v1/runs", json={"name": f"r{number}", "game": "tic_tac_toe" if number % 2 else "connect_four"})
    site.http.post("/v1/runs/r2/pause")
    names = [run["name"] for page in site.pages("/v1/runs?limit=2") for run in page]
    assert names == [f"r{number}" for number in range(5)]
    assert [run["name"] for run in site.http.get("/v1/runs?state=paused").json()] == ["r2"]
    assert [run["name"] for page in site.pages("/v1/runs?game=tic_tac_toe&limit=1") for run in page] == ["r1", "r3"]


def test_workers_by_role_host_tag_and_run_in_pages(site: Site) -> None:
    for number in range(6):
        site.beat(f"w{number}", "selfplay.cpu", host=f"h{number % 2}", tags=("jarvis",) if number == 3 else ())
    site.beat("i", role="inference", run="")
    site.beat("l", role="learner", run="first")
    assert [len(page) for page in site.pages("/v1/workers?limit=3")] == [3, 3, 2]

    def names(query: str) -> list[str]:
        return [worker["worker"] for worker in site.http.get(f"/v1/workers?{query}").json()]

    assert names("role=inference") == ["i"]
    assert names("host=h1&role=selfplay") == ["w1", "w3", "w5"]
    assert names("tag=jarvis") == ["w3"]
    assert len(names("tag=cpu")) == 6
    assert names("run=first") == ["l"]


def test_results_in_pages_newest_first_with_ratings_of_all(site: Site) -> None:
    site.http.post("/v1/runs", json={"name": "first"})
    for number in range(1, 8):
        spec = MatchSpec("latest", "uct:100", 20, 64, 4, 0)
        site.bus.publish(keys.results("first"), encode(MatchResult(spec, f"weights:{number}", "uct:100", 15, 2, 3, number)))
    site.bus.publish(keys.results("first"), encode(GradeResult(7, 64, 200, 18, 8)))
    pages = site.pages("/v1/runs/first/matches?limit=3")
    assert [[match["finished_ms"] for match in page["matches"]] for page in pages] == [[7, 6], [5, 4, 3], [2, 1]]
    assert [len(page["grades"]) for page in pages] == [1, 0, 0]
    assert all(len(page["ratings"]) == 8 for page in pages)


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/jobs", "/v1/workers", "/v1/runs/r0/matches"])
@pytest.mark.parametrize(
    "cursor", ["", "x", "{}", "🂡", "W10", "bnVsbA", encode_cursor("others", "a"), encode_cursor("jobs", 7, "a"), "A" * 600]
)
def test_a_cursor_that_was_never_given_out_is_refused_by_name(site: Site, path: str, cursor: str) -> None:
    fill(site, runs=1)
    answer = site.http.get(path, params={"cursor": cursor})
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:azq:error:InvalidRequest"
    assert "cursor" in answer.json()["detail"]


@given(st.text(max_size=80))
def test_no_text_makes_a_cursor_fail_otherwise(text: str) -> None:
    try:
        assert decode_cursor("jobs", text, str, int) is not None
    except InvalidRequest:
        return


@given(st.text(), st.integers())
def test_cursors_come_back_whole(run: str, number: int) -> None:
    assert decode_cursor("jobs", encode_cursor("jobs", run, number), str, int) == (run, number)


# --- requests sent twice --------------------------------------------------------------------------------------------


def test_an_enqueued_job_is_answered_again_under_its_key(site: Site) -> None:
    site.http.post("/v1/runs", json={"name": "first"})
    site.beat("w", "selfplay.cpu")
    body = {"run": "first", "kind": "selfplay", "games": 3}
    first = site.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k1"})
    site.http.post("/v1/runs/first/pause")  # a new job would be refused now
    again = site.http.post("/v1/jobs", json=dict(reversed(body.items())), headers={"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    other = site.http.post("/v1/jobs", json={**body, "games": 4}, headers={"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["type"]) == (422, "urn:azq:error:KeyReused")
    assert len(site.http.get("/v1/jobs").json()) == 1


def test_a_refused_request_does_not_use_its_key_up(site: Site) -> None:
    site.http.post("/v1/runs", json={"name": "first"})
    body, headers = {"run": "first", "kind": "selfplay"}, {"Idempotency-Key": "k1"}
    assert site.http.post("/v1/jobs", json=body, headers=headers).status_code == 409  # no worker yet
    site.beat("w", "selfplay.cpu")
    assert "idempotency-replayed" not in site.http.post("/v1/jobs", json=body, headers=headers).headers
    assert len(site.http.get("/v1/jobs").json()) == 1


def test_a_created_run_is_answered_again_under_its_key_and_is_a_conflict_without(site: Site) -> None:
    body = {"name": "first", "until": {"minutes": 5}}
    first = site.http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
    site.http.patch("/v1/runs/first", json={"until": {"games": 9}})
    again = site.http.post("/v1/runs", json=body, headers={"Idempotency-Key": "k"})
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert site.http.post("/v1/runs", json=body).status_code == 409
    assert site.http.post("/v1/runs", json={"name": "second"}, headers={"Idempotency-Key": "k"}).status_code == 422
    assert [run["name"] for run in site.http.get("/v1/runs").json()] == ["first"]


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "tab\t", "é"])
def test_a_key_that_is_none_is_refused(site: Site, key: str) -> None:
    answer = site.http.post("/v1/runs", json={"name": "first"}, headers={b"Idempotency-Key": key.encode()})
    assert answer.status_code == 422
    assert site.http.get("/v1/runs").json() == []


# --- what `azq up` can do -------------------------------------------------------------------------------------------


def test_a_run_of_a_game_has_its_preset_below_its_own_settings(site: Site) -> None:
    two_cores = site.http.post("/v1/runs", json={"name": "a", "game": "tic_tac_toe"}).json()["sections"]
    large = site.http.post("/v1/runs", json={"name": "b", "game": "tic_tac_toe", "preset": "gpu"}).json()["sections"]
    own = {"search": {"num_simulations": 17}}
    changed = site.http.post("/v1/runs", json={"name": "c", "game": "tic_tac_toe", "sections": own}).json()["sections"]
    assert two_cores["network"]["kind"] == "mlp"
    assert large != two_cores
    assert changed["search"]["num_simulations"] == 17
    assert changed["network"] == two_cores["network"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"game": "tic_tac_toe", "preset": "tpu"}, "gpu"),
        ({"game": "../../etc/passwd"}, "no game"),
        ({"game": "tic_tac_toe", "preset": "../x"}, "preset"),
        ({"preset": "gpu"}, "game"),
        ({"game": "tic_tac_toe", "sections": {"run": {"game": "connect_four"}}}, "name one"),
        ({"game": "tic_tac_toe", "sections": {"run": 7}}, "run"),
        ({"until": {"minutes": float("inf")}}, "minutes"),
        ({"directory": "a\x00b"}, "directory"),
    ],
)
def test_a_run_that_cannot_be_meant_is_refused(site: Site, body: dict[str, Any], words: str) -> None:
    answer = site.http.post("/v1/runs", content=json.dumps({"name": "first", **body}), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["detail"]
    assert site.http.get("/v1/runs").json() == []


def test_goals_are_changed_without_touching_the_state(site: Site) -> None:
    site.http.post("/v1/runs", json={"name": "first", "until": {"minutes": 5}})
    site.http.post("/v1/runs/first/pause")
    changed = site.http.patch("/v1/runs/first", json={"until": {"steps": 100}}).json()
    assert (changed["until"], changed["state"]) == ({"steps": 100.0}, "paused")
    assert site.http.patch("/v1/runs/first", json={}).status_code == 422
    assert site.http.patch("/v1/runs/nope", json={"until": {}}).status_code == 404


def publish(site: Site, home: Path, *blobs: bytes) -> None:
    store = open_store("file", directory=home / "first" / "weights")
    for version, data in enumerate(blobs, 1):
        sha256, uri = store.put(data)
        site.bus.publish(keys.weights("first"), encode(WeightEvent("first", version, sha256, uri, version * 10, 0)))


def test_weights_are_downloaded_by_version_and_not_twice(site: Site, tmp_path: Path) -> None:
    site.http.post("/v1/runs", json={"name": "first"})
    assert site.http.get("/v1/runs/first/weights/latest").status_code == 404
    old, new = b"old" * 100_000, b"new" * 200_000
    publish(site, tmp_path, old, new)
    answer = site.http.get("/v1/runs/first/weights/latest")
    assert answer.content == new
    assert answer.headers["etag"] == f'"{hashlib.sha256(new).hexdigest()}"'
    assert (answer.headers["azq-weight-version"], answer.headers["content-length"]) == ("2", str(len(new)))
    assert site.http.get("/v1/runs/first/weights/1").content == old
    unchanged = site.http.get("/v1/runs/first/weights/latest", headers={"If-None-Match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


@pytest.mark.parametrize(("version", "status"), [("3", 404), ("0", 422), ("-1", 422), ("newest", 422), ("999999999", 404)])
def test_weights_that_do_not_exist_are_refused(site: Site, tmp_path: Path, version: str, status: int) -> None:
    site.http.post("/v1/runs", json={"name": "first"})
    publish(site, tmp_path, b"one", b"two")
    assert site.http.get(f"/v1/runs/first/weights/{version}").status_code == status


def test_damaged_or_lost_weights_are_named_and_not_sent(site: Site, tmp_path: Path) -> None:
    site.http.post("/v1/runs", json={"name": "first"})
    publish(site, tmp_path, b"one", b"two")
    one, two = sorted((tmp_path / "first" / "weights").iterdir(), key=lambda path: path.read_bytes())
    one.write_bytes(b"torn")
    two.unlink()
    damaged, lost = (site.http.get(f"/v1/runs/first/weights/{version}") for version in (1, 2))
    assert (damaged.status_code, damaged.json()["type"]) == (502, "urn:azq:error:WeightsError")
    assert (lost.status_code, lost.json()["type"]) == (502, "urn:azq:error:StoreError")
