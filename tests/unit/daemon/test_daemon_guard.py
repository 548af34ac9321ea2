"""What is refused before a route sees it, and what the audit notes of the rest."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from memory_broker import MemoryBus
from pydantic import SecretStr
from rest_site import RestSite
from waiting import PATIENCE_S, until

import azq
from azq.bus.base import Entry
from azq.config import TokenConfig
from azq.errors import BrokerUnavailable, ConfigError, TooManyRequests
from azq.status.events import MOST_WAITING, Auditor, line_of, write_command
from azq.wire import keys
from azq.wire.messages import AuditLine, RunRecord
from daemon.api.access import FORWARDED
from daemon.api.limits import Streams
from daemon.api.runs import folder_of
from daemon.api.services import Services

TOKEN = "token-that-operates"
PAUSE = "/v1/runs/mine/pause"


def client_of(token: str = "", **options: Any) -> TestClient:
    site = RestSite(token=SecretStr(token), **options)
    site.ledger.create_run(RunRecord("mine", b"{}", {}, "runs/mine", 1))
    if token:
        site.http.headers["Authorization"] = f"Bearer {token}"
    return site.http


@pytest.fixture(params=["", TOKEN], ids=["without token", "with token"])
def client(request: pytest.FixtureRequest) -> TestClient:
    return client_of(request.param)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://azq.example"}, 200),  # a proxy that lost the Host: the browser vouches
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://127.0.0.1:9090"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
    ids=str,
)
def test_pages_of_other_sites_and_forms_change_nothing(client: TestClient, headers: dict[str, str], status: int) -> None:
    answer = client.post(PAUSE, headers=headers)
    assert (answer.status_code, answer.json().get("type")) == (status, REFUSED[status])
    assert client.patch("/v1/runs/mine", json={"until": {}}, headers=headers).status_code == status
    seen = client.get("/v1/runs/mine", headers=headers)  # a link may be followed: it changes nothing
    assert (seen.status_code, seen.json()["state"]) == (200, "paused" if status == 200 else "running")


REFUSED = {200: None, 403: "urn:azq:error:AccessDenied", 415: "urn:azq:error:InvalidRequest"}


def test_a_body_says_that_it_is_json(client: TestClient) -> None:
    body, kind = b'{"reason": "lunch"}', "Application/JSON; charset=utf-8"
    assert client.post(PAUSE, content=body).status_code == 415
    assert client.post(PAUSE, content=iter([body])).status_code == 415  # of no said length
    assert client.post(PAUSE, content=body, headers={"Content-Type": kind}).json()["reason"] == "lunch"


def test_a_proxy_before_a_daemon_without_token_is_refused_with_the_remedy() -> None:
    headers = {FORWARDED[0]: "1.1 proxy"}
    answer = client_of().get("/v1/runs", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:azq:error:AccessDenied")
    assert "daemon.token" in answer.json()["detail"]
    assert client_of(TOKEN).get("/v1/runs", headers=headers).status_code == 200


# --- what strangers are told ----------------------------------------------------------------------------------------


def test_the_version_is_for_those_who_may_ask() -> None:
    client = client_of(TOKEN)
    for path in ("/healthz", "/docs"):
        assert azq.__version__ in client.get(path).text
        assert azq.__version__ not in client.get(path, headers={"Authorization": "Bearer wrong"}).text
        assert client.get(path, headers={"Authorization": ""}).status_code == 200
    assert client.get("/healthz", headers={"Authorization": ""}).json().keys() == {"status", "ticks", "failed_ticks"}


# --- streams --------------------------------------------------------------------------------------------------------


def test_no_token_holds_all_streams() -> None:
    streams = Streams(4)
    for _ in range(3):
        streams.enter("reader")
    with pytest.raises(TooManyRequests, match=r"'reader' has 3 .*three quarters"):
        streams.enter("reader")
    streams.enter("operator")
    with pytest.raises(TooManyRequests, match="4 event streams are open"):
        streams.enter("operator")
    streams.leave("reader")
    streams.enter("reader")
    assert streams.open == 4


def test_the_share_of_a_token_is_that_of_its_name() -> None:
    reader = TokenConfig(token=SecretStr("token-that-reads"), scope="read")
    client = client_of(TOKEN, doubles={"streams": Streams(2)}, tokens={"reader": reader})
    services: Services = client.app.state.services  # type: ignore[attr-defined]
    services.streams.enter("reader")
    refused = client.get("/v1/events", headers={"Authorization": "Bearer token-that-reads"})
    assert (refused.status_code, "'reader'" in refused.json()["detail"]) == (429, True)
    services.streams.closing = True
    assert client.get("/v1/events").status_code == 200


# --- folders --------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "runs"
    (home / "other").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (home / "link").symlink_to(tmp_path / "elsewhere")
    (home / "loop").symlink_to(home / "loop")
    return home


@pytest.mark.parametrize("said", ["/etc/cron.d", "../elsewhere", "mine/../../x", "link", "link/x", ".", "", ".broker/control", "a/.token"])
def test_a_folder_outside_of_home_or_of_azqs_own_is_refused(home: Path, said: str) -> None:
    if not said:
        assert folder_of("mine", said, home, {}) == str(home / "mine")
        return
    with pytest.raises(ConfigError, match="below"):
        folder_of("mine", said, home, {})
    with pytest.raises(ConfigError, match="below"):
        folder_of("mine", os.path.join(home, said), home, {})


@pytest.mark.parametrize("said", ["other", "other/deep", "deep"])
def test_the_folder_of_another_run_is_refused_and_so_is_what_holds_it(home: Path, said: str) -> None:
    taken = {"other": str(home / "other"), "third": str(home / "deep" / "third"), "old": ""}
    with pytest.raises(ConfigError, match="that of run"):
        folder_of("mine", said, home, taken)
    for sound in ("mine", "deep/mine", "loop"):
        assert folder_of("mine", sound, home, taken) == str(home / sound)


def test_a_folder_that_is_none_of_the_runs_is_refused_over_rest() -> None:
    client = client_of()
    for said in ("/tmp/x", "mine", "mine/deeper"):
        answer = client.post("/v1/runs", json={"name": "second", "directory": said})
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:azq:error:ConfigError")
    assert client.post("/v1/runs", json={"name": "second", "directory": "sub/second"}).status_code == 201


TOKENS = {"anna": ("token-of-anna", "operate"), "reader": ("token-of-reader", "read")}


class Desk(RestSite):
    """A REST interface that several may use."""

    def __init__(self) -> None:
        tokens = {name: TokenConfig(token=SecretStr(token), scope=scope) for name, (token, scope) in TOKENS.items()}  # type: ignore[arg-type]
        super().__init__(clock_ms=lambda: 7, tokens=tokens)

    def ask(self, who: str, method: str, path: str, **options: Any) -> int:
        headers = {"Authorization": f"Bearer {TOKENS[who][0]}", **options.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **options).status_code

    def lines(self) -> list[AuditLine]:
        self.app.state.auditor.close()
        found = map(line_of, self.bus.after(keys.AUDIT, "0"))
        return [line for line in found if line is not None]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_each_change_leaves_a_line_with_who_what_whence_when_and_how_it_was_answered(desk: Desk) -> None:
    assert desk.ask("anna", "POST", "/v1/runs", json={"name": "mine"}, headers={"Idempotency-Key": "k1"}) == 201
    assert desk.ask("anna", "POST", "/v1/runs/mine/pause") == 200
    assert desk.ask("anna", "POST", "/v1/runs/nope/pause", headers={"X-Request-Id": "r7"}) == 404
    assert desk.ask("anna", "PATCH", "/v1/runs/mine", json={"until": {"hours": 1}}) == 422
    assert desk.ask("anna", "DELETE", "/v1/runs/mine") == 204
    assert desk.lines() == [
        AuditLine(7, "anna", "POST /v1/runs", "testclient", 201, about="mine", key="k1"),
        AuditLine(7, "anna", "POST /v1/runs/mine/pause", "testclient", 200),
        AuditLine(7, "anna", "POST /v1/runs/nope/pause", "testclient", 404, key="r7"),
        AuditLine(7, "anna", "PATCH /v1/runs/mine", "testclient", 422),
        AuditLine(7, "anna", "DELETE /v1/runs/mine", "testclient", 204),
    ]


def test_reading_and_those_who_may_change_nothing_leave_none(desk: Desk) -> None:
    assert desk.ask("anna", "GET", "/v1/runs") == 200
    assert desk.ask("reader", "POST", "/v1/runs/mine/pause") == 403
    assert desk.http.post("/v1/runs/mine/pause").status_code == 401
    assert desk.http.post("/healthz").status_code == 405
    assert desk.lines() == []


def test_a_route_that_crashes_is_noted_as_that(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.ledger, "set_run_state", lambda *_: 1 / 0)
    assert desk.ask("anna", "POST", "/v1/runs", json={"name": "mine"}) == 201
    assert desk.ask("anna", "POST", "/v1/runs/mine/pause") == 500
    assert [line.status for line in desk.lines()] == [201, 500]


def test_operators_read_it_newest_first_in_pages(desk: Desk) -> None:
    for number in range(5):
        desk.ask("anna", "POST", "/v1/runs", json={"name": f"r{number}"})
    desk.lines()
    headers = {"Authorization": f"Bearer {TOKENS['anna'][0]}"}
    assert desk.http.get("/v1/audit", headers={"Authorization": f"Bearer {TOKENS['reader'][0]}"}).status_code == 403
    page = desk.http.get("/v1/audit?limit=3", headers=headers)
    assert [line["about"] for line in page.json()] == ["r4", "r3", "r2"]
    rest = desk.http.get(page.links["next"]["url"], headers=headers)
    assert ([line["about"] for line in rest.json()], "next" in rest.links) == (["r1", "r0"], False)
    assert desk.http.get("/v1/audit?cursor=x", headers=headers).status_code == 422


class Stuck(MemoryBus):
    """A control plane that hangs until it is let go, or refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str:
        if stream == keys.AUDIT and not self.go.wait(PATIENCE_S):
            raise AssertionError("nobody let it go")
        return super().publish(stream, frame, max_length=max_length)


def line(number: int) -> AuditLine:
    return AuditLine(number, "anna", "POST /v1/runs")


def test_a_control_plane_that_hangs_holds_nobody_up_and_loses_lines_at_worst() -> None:
    bus = Stuck()
    auditor = Auditor(bus)
    for number in range(MOST_WAITING + 10):
        auditor.note(line(number))
    bus.go.set()
    until(lambda: bus.length(keys.AUDIT) >= MOST_WAITING, "the lines that waited")
    auditor.close()
    written = [line_of(entry) for entry in bus.after(keys.AUDIT, "0", count=2 * MOST_WAITING)]
    assert [one.at_ms for one in written if one][:MOST_WAITING] == list(range(MOST_WAITING))


def test_a_control_plane_that_is_away_loses_the_line_and_not_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus()
    auditor = Auditor(bus)
    failed = threading.Event()
    real = bus.publish

    def once(*arguments: Any, **named: Any) -> str:
        if failed.is_set():
            return real(*arguments, **named)
        failed.set()
        raise BrokerUnavailable("away")

    monkeypatch.setattr(bus, "publish", once)
    auditor.note(line(1))
    assert failed.wait(PATIENCE_S)
    auditor.note(line(2))
    auditor.close()
    assert [one and one.at_ms for one in map(line_of, bus.after(keys.AUDIT, "0"))] == [2]


def test_a_command_is_noted_as_its_user_and_what_does_not_decode_is_passed_over() -> None:
    bus = MemoryBus()
    write_command(bus, "azq up", "first")
    noted = line_of(bus.after(keys.AUDIT, "0")[0])
    assert noted is not None
    assert (noted.what, noted.about, noted.status, "@" in noted.who) == ("azq up", "first", 0, True)
    assert line_of(Entry(keys.AUDIT, "1-0", b"garbage")) is None
    bus.down = True
    write_command(bus, "azq up", "first")  # is said, and no error
