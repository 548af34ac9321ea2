"""The REST interface over the doubles of ledger and bus."""

from __future__ import annotations

import dataclasses
import re
import time
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from factories import learner_status
from pydantic import SecretStr
from rest_site import RestSite

from azq.config import DaemonConfig
from azq.config.access import check_binding, check_tls, is_loopback
from azq.errors import BrokerUnavailable, ConfigError
from azq.tracing import CREATE_RUN, TRACES, TraceSpan, span_of, trace_of
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.machines import MachineTime, Spending
from azq.wire.messages import GradeResult, HistoryPoint, MatchResult, MatchSpec, WeightEvent
from daemon.api.access import Keyring
from daemon.api.app import METHODS
from daemon.api.app import render_reference as render
from daemon.api.conventions import MEDIA_TYPE
from daemon.decide.actions import Condition


@pytest.fixture
def site() -> RestSite:
    return RestSite()


def assert_problem(response: Any, status: int, *words: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert {"type", "title", "detail", "instance"} <= body.keys()
    for word in words:
        assert word in body["detail"]
    return body


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_run_that_is_created_has_the_span_that_its_games_link_to(site: RestSite) -> None:
    spans: list[TraceSpan] = []
    TRACES.start(spans.append, 0.0)
    for _ in range(2):
        created_ms = site.create(headers={"Idempotency-Key": "once"}).json()["created_ms"]
    TRACES.stop()
    trace = trace_of("run", "first", created_ms)
    assert [(span["traceId"], span["spanId"]) for span in spans] == [(trace.hex(), span_of(trace, CREATE_RUN).hex())]


def test_a_run_is_created_listed_and_shown(site: RestSite) -> None:
    created = site.create(sections={"run": {"game": "tic_tac_toe"}, "search": {"num_simulations": 32}}, until={"minutes": 5})
    assert created.status_code == 201
    assert created.json()["state"] == "running"
    shown = site.http.get("/v1/runs/first").json()
    assert shown["sections"]["search"]["num_simulations"] == 32
    assert shown["sections"]["learner"]["batch_size"] > 0
    assert shown["until"] == {"minutes": 5.0}
    assert shown["directory"].endswith("/runs/first")
    assert [run["name"] for run in site.http.get("/v1/runs").json()] == ["first"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sections": {"search": {"num_simulation": 3}}}, ("search.num_simulation", "unknown key")),
        ({"sections": {"search": {"num_simulations": 0}}}, ("search.num_simulations",)),
        ({"sections": {"run": {"game": "chess3d"}}}, ("chess3d", "tic_tac_toe")),
        ({"sections": {"run": {"game": "/anywhere/game.py:Game"}}}, ("Python files", "azq up")),
        ({"sections": {"run": {"game": "openspiel:efg_game(filename=/etc/hostname)"}}}, ("none of openspiel:NAME",)),
        ({"game": "openspiel:../x"}, ("none of openspiel:NAME",)),
        ({"sections": {"run": {"game": "openspiel:efg_game", "params": {"filename": "fifo"}}}}, ("open no files",)),
        ({"sections": {"run": {"game": "openspiel:pig", "params": {"text": "/dev/zero"}}}}, ("open no files",)),
        ({"until": {"hours": 1}}, ("hours",)),
        ({"until": {"minutes": -1}}, ("minutes",)),
        ({"colour": "red"}, ("colour",)),
    ],
)
def test_a_wrong_run_is_refused_with_the_key_at_fault_and_nothing_is_left(
    site: RestSite, body: dict[str, Any], words: tuple[str, ...]
) -> None:
    assert_problem(site.create(**body), 422, *words)
    assert site.http.get("/v1/runs").json() == []


def test_names_are_checked_and_unique(site: RestSite) -> None:
    assert_problem(site.create(name="../etc"), 422, "name")
    site.create()
    assert_problem(site.create(), 409, "first")


def test_pause_resume_finish(site: RestSite) -> None:
    site.create()
    assert site.http.post("/v1/runs/first/pause", json={"reason": "lunch"}).json()["reason"] == "lunch"
    assert site.http.get("/v1/runs/first").json()["state"] == "paused"
    assert site.http.post("/v1/runs/first/resume").json()["state"] == "running"
    assert_problem(site.http.post("/v1/runs/first/resume"), 409, "running")
    assert site.http.post("/v1/runs/first/finish").json()["state"] == "finished"
    again = site.http.post("/v1/runs/first/resume", json={"until": {"games": 100}}).json()
    assert (again["state"], again["until"]) == ("running", {"games": 100.0})


def test_a_run_that_only_its_folder_knows_is_named_with_what_goes_on_from_it(site: RestSite, tmp_path: Path) -> None:
    for name in ("lost", "half"):
        (tmp_path / name).mkdir()
    (tmp_path / "lost" / "run.toml").touch()
    site.http.app.state.services = dataclasses.replace(site.http.app.state.services, home=tmp_path)  # type: ignore[attr-defined]
    assert_problem(site.http.get("/v1/runs/lost"), 404, f"`azq runs restore {tmp_path / 'lost'}` goes on from it")
    assert "restore" not in site.http.get("/v1/runs/half").text
    assert "restore" not in site.http.get("/v1/runs/..%2f").text


def test_what_does_not_exist_is_404_everywhere(site: RestSite) -> None:
    for path in ("", "/status", "/ledger", "/weights", "/matches"):
        assert_problem(site.http.get(f"/v1/runs/nope{path}"), 404, "nope")
    for verb in ("pause", "resume", "finish"):
        assert_problem(site.http.post(f"/v1/runs/nope/{verb}"), 404, "nope")
    assert_problem(site.http.get("/v1/jobs/nope:1"), 404, "nope:1")
    assert_problem(site.http.post("/v1/jobs/nope:1/revoke"), 404, "nope:1")
    assert_problem(site.http.get("/v1/jobs?run=nope"), 404, "nope")
    assert_problem(site.http.get("/v2/runs"), 404)
    assert_problem(site.http.delete("/v1/runs"), 405)


# --- jobs -----------------------------------------------------------------------------------------------------------


def test_a_self_play_job_is_enqueued_listed_shown_and_revoked(site: RestSite) -> None:
    site.create()
    site.beat("w1", "selfplay.cpu", "selfplay.jarvis")
    answer = site.http.post(
        "/v1/jobs", json={"run": "first", "kind": "selfplay", "tag": "jarvis", "priority": 0, "games": 16, "slice_s": 5}
    )
    assert answer.status_code == 201
    job = answer.json()
    assert (job["state"], job["tag"], job["priority"], job["games"], job["slice_s"]) == ("queued", "jarvis", 0, 16, 5.0)
    assert site.http.get("/v1/jobs").json() == [job]
    assert site.http.get(f"/v1/jobs/{job['job_id']}").json() == job
    assert site.http.post(f"/v1/jobs/{job['job_id']}/revoke").json()["state"] == "cancelled"
    assert site.http.get("/v1/jobs?run=first").json() == []
    assert_problem(site.http.post(f"/v1/jobs/{job['job_id']}/revoke"), 409)


def test_a_match_is_enqueued_where_an_eval_worker_lives(site: RestSite) -> None:
    site.create(sections={"run": {"tag": "cuda"}})
    site.beat("w1", "eval.cpu", role="eval")
    job = site.http.post(
        "/v1/jobs", json={"run": "first", "kind": "eval", "match": {"first": "latest", "second": "uct:100", "games": 6}}
    ).json()
    assert (job["tag"], job["kind"], job["games"]) == ("cpu", "eval", 6)
    spec = decode(site.ledger.job(job["job_id"]).job.payload, MatchSpec)
    assert (spec.first, spec.second, spec.games) == ("latest", "uct:100", 6)


def test_a_tag_without_live_worker_is_refused_with_the_live_ones_and_nothing_is_queued(site: RestSite) -> None:
    site.create()
    site.beat("w1", "selfplay.cpu", "eval.cuda")
    problem = assert_problem(site.http.post("/v1/jobs", json={"run": "first", "kind": "selfplay", "tag": "jarvis"}), 409, "jarvis", "cpu")
    assert "cuda" not in problem["detail"]
    assert problem["type"] == "urn:azq:error:UnknownTagError"
    assert site.http.get("/v1/jobs").json() == []


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "eval"},
        {"kind": "eval", "match": {"first": "latest", "second": "uct:0"}},
        {"kind": "eval", "match": {"first": "latest", "second": "alphago"}},
        {"kind": "eval", "match": {"first": "latest", "second": "random"}, "grade": {"weight_version": 1}},
        {"kind": "selfplay", "grade": {"weight_version": 1}},
        {"kind": "selfplay", "priority": 10},
        {"kind": "train"},
    ],
)
def test_a_wrong_job_is_refused(site: RestSite, body: dict[str, Any]) -> None:
    site.create()
    site.beat("w1", "selfplay.cpu", "eval.cpu")
    assert_problem(site.http.post("/v1/jobs", json={"run": "first", **body}), 422)
    assert site.http.get("/v1/jobs").json() == []


def test_a_paused_run_takes_no_jobs(site: RestSite) -> None:
    site.create()
    site.beat("w1", "selfplay.cpu")
    site.http.post("/v1/runs/first/pause")
    assert_problem(site.http.post("/v1/jobs", json={"run": "first", "kind": "selfplay"}), 409, "paused", "resume")


# --- what belongs to a run ------------------------------------------------------------------------------------------


def fill(site: RestSite) -> None:
    site.create()
    site.beat("w1", "selfplay.cpu", rates={"games_per_s": 200.0, "simulations_per_s": 900.0})
    site.beat("i1", role="inference", rates={"evaluations_per_s": 900.0, "mean_batch": 3.0})
    point = HistoryPoint(0, 2.0, 100.0, 90.0, 30.0, samples_per_s=7.0, active_ms=1)
    site.bus.publish(keys.history("first"), encode(point))
    status = learner_status(step=5, samples_inserted=100, samples_consumed=250, loss_policy=1.5, weight_version=2, waiting=True)
    site.bus.put(keys.learner_status("first"), encode(status), life_s=60)
    for version in (1, 2):
        site.bus.publish(
            keys.weights("first"),
            encode(WeightEvent("first", version, f"{version:064x}", f"file:{version}", version * 10, 0, 2 * version, 32)),
        )
    spec = MatchSpec("weights:2", "uct:100", 20, 64, 4, 0)
    site.bus.publish(keys.results("first"), encode(MatchResult(spec, "weights:2", "uct:100", 15, 2, 3, 0)))
    site.bus.publish(keys.results("first"), encode(GradeResult(2, 64, 200, 18, 0, {"BH": (9, 100)})))


def test_a_run_asked_for_by_name_tells_the_present_size_of_its_network(site: RestSite) -> None:
    fill(site)
    configured = {"kind": "resnet", "configured_blocks": 4, "configured_channels": 48}
    grown = {**configured, "blocks": 4, "channels": 32}
    assert site.http.get("/v1/runs/first").json()["network"] == grown
    assert site.http.get("/v1/runs/first/status").json()["network"] == grown
    assert site.http.get("/v1/runs").json()[0]["network"] is None
    site.create("second")
    assert site.http.get("/v1/runs/second").json()["network"] == {**configured, "blocks": None, "channels": None}


def test_the_status_shows_every_figure_of_the_live_table(site: RestSite) -> None:
    fill(site)
    status = site.http.get("/v1/runs/first/status").json()
    assert status["games_per_s"] == 2.0
    assert status["simulations_per_s"] == 100.0
    assert status["evaluations_per_s"] == 90.0
    assert status["mean_batch"] == pytest.approx(30.0)
    assert status["samples_per_insert"] == 2.5
    assert (status["learner_step"], status["weight_version"], status["samples_per_s"]) == (5, 2, 7.0)
    assert status["learner_waiting"] is True
    assert status["strength"]["error_share"] == pytest.approx(0.09)
    assert status["strength"]["elo_low"] < status["strength"]["elo"] < status["strength"]["elo_high"]
    assert status["strength"]["elo"] > 0
    assert status["ledger"]["balanced"] is True
    assert {worker["worker"] for worker in status["workers"]} == {"w1", "i1"}


def test_weights_matches_ledger_workers(site: RestSite) -> None:
    fill(site)
    assert [item["version"] for item in site.http.get("/v1/runs/first/weights").json()] == [2, 1]
    assert len(site.http.get("/v1/runs/first/weights?limit=1").json()) == 1
    arena = site.http.get("/v1/runs/first/matches").json()
    assert (arena["matches"][0]["wins"], arena["grades"][0]["errors"]) == (15, 18)
    assert {rating["player"] for rating in arena["ratings"]} == {"weights:2", "uct:100"}
    assert site.http.get("/v1/runs/first/ledger").json()["opened"] == 0
    assert [worker["worker"] for worker in site.http.get("/v1/workers?role=inference").json()] == ["i1"]


def test_an_unreadable_heartbeat_or_result_hides_nothing_else(site: RestSite) -> None:
    fill(site)
    site.bus.put(keys.beat("old"), b"\x93garbage", life_s=60)
    site.bus.publish(keys.results("first"), b"garbage")
    assert len(site.http.get("/v1/workers").json()) == 2
    assert len(site.http.get("/v1/runs/first/matches").json()["matches"]) == 1


# --- the daemon itself ----------------------------------------------------------------------------------------------


def test_health_and_readiness(site: RestSite) -> None:
    assert site.http.get("/healthz").json()["status"] == "alive"
    assert_problem(site.http.get("/readyz"), 503)
    site.health.tick_ok([])
    assert site.http.get("/readyz").json()["status"] == "ready"
    site.health.tick_failed("no broker at unix:///x")
    assert_problem(site.http.get("/readyz"), 503, "no broker at unix:///x")
    site.health.tick_ok([], now_s=time.monotonic() - 3600)
    assert_problem(site.http.get("/readyz"), 503, "no look at the broker")


def test_metrics_are_prometheus_text_and_independent_of_other_apps(site: RestSite) -> None:
    fill(site)
    RestSite().http.get("/metrics")
    text = site.http.get("/metrics").text
    assert 'azq_learner_step{run="first"} 5.0' in text
    assert 'azq_queue_slots{queue="selfplay.cpu"} 1.0' in text
    assert 'azq_broker_up{plane="control"} 1.0' in text
    assert 'azq_run_state{run="first",state="running"} 1.0' in text


def test_a_broker_that_is_gone_is_a_503_problem_and_shows_in_metrics(site: RestSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokerUnavailable("no broker at unix:///x; start it")

    monkeypatch.setattr(site.ledger, "runs", gone)
    monkeypatch.setattr(site.ledger, "run", gone)
    response = site.http.get("/v1/runs/first")
    assert_problem(response, 503, "no broker")
    assert response.headers["retry-after"] == "2"
    assert 'azq_broker_up{plane="control"} 0.0' in site.http.get("/metrics").text


def test_a_crash_tells_no_internals(site: RestSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(site.ledger, "runs", crash)
    response = site.http.get("/v1/runs")
    assert_problem(response, 500)
    assert "secret detail" not in response.text


def test_openapi_has_examples_that_the_interface_accepts(site: RestSite) -> None:
    schemas = site.http.get("/openapi.json").json()["components"]["schemas"]
    site.beat("w1", "selfplay.cpu", "eval.cpu")
    for example in schemas["NewRun"]["examples"]:
        assert site.http.post("/v1/runs", json=example).status_code == 201
    for example in schemas["NewJob"]["examples"]:
        assert site.http.post("/v1/jobs", json=example).status_code == 201


# --- who may ask ----------------------------------------------------------------------------------------------------


def test_without_a_token_a_foreign_host_header_is_refused(site: RestSite) -> None:
    assert_problem(site.http.get("/v1/runs", headers={"Host": "evil.example"}), 421)
    for host in ("127.0.0.1:9999", "localhost", "[::1]:8080"):
        assert site.http.get("/v1/runs", headers={"Host": host}).status_code == 200


def test_binding_beyond_loopback_needs_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.4", "trainer.example"):
        with pytest.raises(ConfigError, match=r"daemon\.token"):
            check_binding(DaemonConfig(host=host))
        check_binding(DaemonConfig(host=host, token=SecretStr("x" * 8)))
    for host in ("127.0.0.1", "::1", "localhost", "127.3.2.1"):
        check_binding(DaemonConfig(host=host))
        check_tls(DaemonConfig(host=host))
        assert is_loopback(host)


def test_the_token_is_compared_whole() -> None:
    keyring = Keyring.of(DaemonConfig(token=SecretStr("s3cret-token")))
    assert keyring.identify("bearer s3cret-token") is not None
    for wrong in ("Bearer s3cret-toke", "Bearer ", "", "Bearer sécret-token", "s3cret-token", "Basic s3cret-token", "Bearer s3cret-token2"):
        assert keyring.identify(wrong) is None


def test_a_body_beyond_the_limit_is_refused_announced_or_not(site: RestSite) -> None:
    large = b'{"name": "' + b"x" * 2_000_000 + b'"}'
    headers = {"Content-Type": "application/json"}
    assert_problem(site.http.post("/v1/runs", content=large, headers=headers), 413)
    assert_problem(site.http.post("/v1/runs", content=iter([large[:900_000], large[900_000:]]), headers=headers), 413)
    assert_problem(site.http.post("/v1/runs", content=b"{not json", headers=headers), 422)


def test_what_a_run_costs_is_told_by_component_and_with_its_end(site: RestSite) -> None:
    site.create(sections={"run": {"game": "tic_tac_toe"}}, until={"money": 5.0})
    assert site.http.get("/v1/runs/first/cost").json()["money"] == 0.0
    machines = {"h": MachineTime("box", 2.0, ("selfplay",), 3_600_000.0, 0.0, 4.5), "g": MachineTime(ms=1.0, unpriced_ms=1.0)}
    site.bus.put(keys.cost("first"), encode(Spending(1, 1.0, 2.0, "USD", machines)))
    cost = site.http.get("/v1/runs/first/cost").json()
    assert (cost["money"], cost["currency"], cost["unpriced"], cost["ends_by"]) == (4.5, "USD", ["g"], "money=5")
    assert cost["ends_in_s"] == pytest.approx(900.0)
    status = site.http.get("/v1/runs/first/status").json()
    assert status["cost"] == cost
    assert "80% of the run's 5 USD is spent" in status["conditions"]
    assert site.http.get("/v1/runs/other/cost").status_code == 404


def test_the_fleets_warning_is_a_condition_of_every_run(site: RestSite) -> None:
    site.create(sections={"run": {"game": "tic_tac_toe"}})
    site.health.tick_ok([Condition("budget", "", "95% of the fleet's budget (4 h) is spent")])
    assert site.http.get("/v1/runs/first/status").json()["conditions"] == ["95% of the fleet's budget (4 h) is spent"]


def table_of(page: str) -> list[list[str]]:
    """What a browser shows of each row's cells, the head's row first."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)] for row in rows]


def test_it_lists_every_operation_with_its_scope_and_what_it_does() -> None:
    site = RestSite().http
    table = table_of(site.get("/docs").text)[1:]
    paths = site.get("/openapi.json").json()["paths"]
    assert {(row[0], row[1]) for row in table} == {
        (method.upper(), path) for path, item in paths.items() for method in METHODS if method in item
    }
    assert all(row[2] in ("none", "worker", "read", "operate") and row[3] for row in table)
    assert ["POST", "/v1/runs", "operate"] in [row[:3] for row in table]


def test_no_page_asks_another_host_for_anything() -> None:
    site = RestSite().http
    page = site.get("/docs").text
    addresses = re.findall(r"""(?:href|src)=["']?([^"'> ]*)""", page)
    assert "<script" not in page
    assert all(site.get(address).status_code == 200 for address in addresses)
    assert addresses
    assert not any(re.match(r"/|\w+:", address) for address in addresses)
    assert site.get("/redoc").status_code == 404


def test_what_a_schema_says_is_shown_as_text() -> None:
    operation = {"description": "Reads <b>&</b>.\nAnd more.", "security": [{"token": ["read"]}]}
    schema = {"info": {"title": "t", "version": "<1>", "description": "d"}, "paths": {"/<x>": {"get": operation}}}
    assert table_of(render(schema))[1:] == [["GET", "/<x>", "read", "Reads <b>&</b>."]]
