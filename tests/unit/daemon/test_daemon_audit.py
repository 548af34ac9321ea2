"""Who changed what: a line for each change that somebody may make, in nobody's way, and in no reader's power to flood."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from memory_broker import MemoryBus, MemoryLedger
from pydantic import SecretStr

from azq.bus.base import Entry
from azq.client import Client
from azq.config import DaemonConfig, TokenConfig
from azq.console.remote import audit_text, read_audit
from azq.errors import BrokerUnavailable
from azq.status.events import MOST_WAITING, Auditor, line_of, write_command
from azq.status.schemas import AuditOut
from azq.wire import keys
from azq.wire.messages import AuditLine
from daemon.api.app import create_app
from daemon.api.services import Services
from daemon.serve.health import Health

TOKENS = {"anna": ("token-of-anna", "operate"), "reader": ("token-of-reader", "read")}


class Desk:
    """A REST interface that several may use."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.ledger = MemoryLedger(self.bus)
        tokens = {name: TokenConfig(token=SecretStr(token), scope=scope) for name, (token, scope) in TOKENS.items()}  # type: ignore[arg-type]
        services = Services(
            self.ledger, self.bus, DaemonConfig(tokens=tokens), Health(), Path("runs"), lambda: ["connect_four"], clock_ms=lambda: 7
        )
        self.app = create_app(services)
        self.http = TestClient(self.app, base_url="http://127.0.0.1", raise_server_exceptions=False)

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
        if stream == keys.AUDIT and not self.go.wait(30):
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
    deadline = time.monotonic() + 60
    while bus.length(keys.AUDIT) < MOST_WAITING:
        assert time.monotonic() < deadline
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
    assert failed.wait(60.0)
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


def out(number: int) -> AuditOut:
    return AuditOut(at_ms=number, who="anna", what=f"POST /{number}", address="here", status=200, about="", key="")


def test_it_is_shown_in_order_and_followed() -> None:
    written = [out(number) for number in range(150)]

    class Told(Client):
        def __init__(self) -> None:
            pass

        def audit(self) -> Any:
            return iter(list(reversed(written)))

    grow: Callable[[float], object] = lambda _: written.extend([out(len(written)), out(len(written) + 1)])  # noqa: E731
    assert [one.at_ms for one in read_audit(Told(), follow=False)] == list(range(50, 150))
    told = read_audit(Told(), follow=True, pause=grow)
    assert [next(told).at_ms for _ in range(106)] == list(range(50, 156))
    assert "POST /7 -> 200" in audit_text(out(7))
