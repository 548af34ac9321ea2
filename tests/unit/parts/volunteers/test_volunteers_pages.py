"""What a gateway answers over HTTP, to browsers and to others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from azq.errors import NotFound
from azq.parts.volunteers import pages

SHA = "ab" * 32


class MemberReport:
    """Networks and public figures that count how often they were asked."""

    def __init__(self) -> None:
        self.asked = 0

    def read(self, sha256: str) -> bytes | None:
        self.asked += 1
        return b"network" if sha256 == SHA else None

    def figures(self, run: str = "") -> dict[str, Any]:
        self.asked += 1
        if run not in ("", "r", "s"):
            raise NotFound(f"no run {run} wants volunteers here; there is: r, s")
        return {"run": run or "r"}

    def playable(self, run: str = "") -> None:
        return None

    def game(self, uid: int, run: str = "") -> Any:
        raise NotFound("it is none of the newest games")


@pytest.fixture
def told() -> MemberReport:
    return MemberReport()


@pytest.fixture
def client(told: MemberReport, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    (tmp_path / "contribute").mkdir()
    (tmp_path / "contribute" / "index.html").write_text("<p>contribute</p>")
    (tmp_path / "azq.wasm").write_bytes(b"core" * 200)
    (tmp_path / "page.js").write_text("let text\n" * 100)
    (tmp_path / "ort.wasm.gz").write_bytes(b"\x1f\x8b")
    monkeypatch.setattr(pages, "FOLDER", str(tmp_path))

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    gateway: Any = SimpleNamespace(talk=talk)
    return TestClient(pages.make_site(gateway, told, told, "https://azq.example/tabs/"), "http://10.0.0.1:8090")  # type: ignore[arg-type]


def test_a_network_never_changes_and_is_read_once(client: TestClient, told: MemberReport) -> None:
    for _ in range(2):
        answer = client.get(f"/models/{SHA}.onnx")
        assert (answer.content, answer.headers["etag"], answer.headers["content-length"]) == (b"network", f'"{SHA}"', "7")
        assert "immutable" in answer.headers["cache-control"]
    assert told.asked == 1
    assert client.get(f"/models/{SHA}.onnx", headers={"If-None-Match": f'"{SHA}"'}).status_code == 304


@pytest.mark.parametrize("name", [f"{'0' * 64}.onnx", SHA, f"{SHA}.onnx.gz", f"{SHA.upper()}.onnx"])
def test_no_other_network_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/models/{name}").status_code == 404


def test_pages_trust_their_own_origin_alone(client: TestClient) -> None:
    answer = client.get("/")
    assert (answer.text, str(answer.url.path)) == ("<p>contribute</p>", "/web/contribute/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe-inline" not in policy
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-cache"


def test_what_is_kept_packed_is_sent_so(client: TestClient) -> None:
    with client.stream("GET", "/web/ort.wasm.gz") as answer:
        assert answer.headers["content-encoding"] == "gzip"


def test_the_core_and_scripts_are_packed_for_browsers_that_accept_it(client: TestClient) -> None:
    packed, plain = (client.get("/web/azq.wasm", headers={"Accept-Encoding": encoding}) for encoding in ("gzip, br", "identity"))
    assert packed.content == plain.content == b"core" * 200
    assert (packed.headers["Content-Encoding"], packed.headers["ETag"]) == ("gzip", plain.headers["ETag"])
    assert packed.headers["Content-Type"] == plain.headers["Content-Type"] == "application/wasm"
    assert "Content-Encoding" not in plain.headers
    script = client.get("/web/page.js", headers={"Accept-Encoding": "gzip"})
    assert (script.headers["Content-Encoding"], script.text) == ("gzip", "let text\n" * 100)


def test_public_figures_are_worked_out_once_for_all_who_ask(client: TestClient, told: MemberReport) -> None:
    assert [client.get("/v1/public").json() for _ in range(3)] == [{"run": "r"}] * 3
    assert told.asked == 1
    assert [client.get("/v1/public", params={"run": "s"}).json() for _ in range(2)] == [{"run": "s"}] * 2
    assert told.asked == 2
    unknown = client.get("/v1/public", params={"run": "x"})
    assert (unknown.status_code, unknown.json()) == (404, {"detail": "no run x wants volunteers here; there is: r, s"})
    assert client.get("/v1/public/games/7").json() == {"detail": "it is none of the newest games"}
    assert client.get("/v1/runs").status_code == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [("10.0.0.1:8090", 200), ("[::1]:8090", 200), ("localhost", 200), ("azq.example", 200), ("evil.example", 421), ("", 421), ("[", 421)],
)
def test_who_asks_by_another_name_is_not_answered(client: TestClient, host: str, status: int) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "taken"),
    [
        ("", True),
        ("http://10.0.0.1:8090", True),
        ("https://azq.example", True),
        ("https://evil.example", False),
        ("http://10.0.0.1:8091", False),
        ("null", False),
    ],
)
def test_a_page_of_another_site_makes_nobody_a_tab(client: TestClient, origin: str, taken: bool) -> None:
    headers = {"Host": "10.0.0.1:8090"} | ({"Origin": origin} if origin else {})
    try:
        with client.websocket_connect("/v1/volunteers/tab", headers=headers):
            assert taken
    except WebSocketDisconnect:
        assert not taken
