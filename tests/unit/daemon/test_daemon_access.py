"""Who may ask, for what, and from which pages."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr
from rest_site import RestSite
from starlette.datastructures import Headers

from azq.config import TokenConfig, load
from azq.errors import ConfigError
from azq.process.start import machine_environment
from daemon.api.access import FORWARDED, SAFE_METHODS, Scope, forwarding, why_foreign, why_no_json
from daemon.api.limits import Limiter

TOKENS = {scope: f"token-of-{scope}" for scope in Scope}
METHODS = ("get", "post", "put", "patch", "delete")
INCLUDED = {"worker": {"worker"}, "read": {"worker", "read"}, "operate": {"worker", "read", "operate"}}


def client_of(**options: Any) -> TestClient:
    return RestSite(**options).http


@cache
def scoped() -> TestClient:
    """One for all that ask: to make one takes half a second."""
    return client_of(
        doubles={"rate_per_s": 1e6},
        tokens={scope: TokenConfig(token=SecretStr(token), scope=scope.value) for scope, token in TOKENS.items()},
    )


@cache
def operations() -> list[tuple[str, str, dict[str, Any]]]:
    document = client_of().get("/openapi.json").json()
    return [(method, path, item[method]) for path, item in document["paths"].items() for method in METHODS if method in item]


FOR_OPERATORS = {"/v1/audit"}
FOR_READERS = {"/v1/runs/{run}/moves"}  # a question with a body
OPEN = {"/healthz", "/readyz", "/", "/favicon.ico"}


def needed(operation: dict[str, Any]) -> str:
    (requirement,) = operation["security"]
    (scope,) = requirement["token"]
    return str(scope)


@pytest.mark.parametrize(("method", "path", "operation"), operations(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_route_declares_its_scope_and_keeps_it(method: str, path: str, operation: dict[str, Any]) -> None:
    if path in OPEN or path.startswith("/page/"):
        assert "security" not in operation
        return
    scope = needed(operation)
    changes = method != "get" and path not in FOR_READERS
    assert scope == "operate" if changes or path in FOR_OPERATORS else scope in ("read", "worker")
    client = scoped()
    url = re.sub(r"\{[^}]*\}", "7", path)
    for held, token in TOKENS.items():
        if scope in INCLUDED[held]:
            continue  # the streams of events among them do not end; the next test asks the others
        answer = client.request(method, url, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 403, (held, answer.text)
        assert answer.json()["type"] == "urn:azq:error:AccessDenied"
        assert f"scope {scope}" in answer.json()["detail"]
        assert token not in answer.text
    assert client.request(method, url).status_code == 401


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for method, path, _ in operations() if not path.endswith("/events") and path not in OPEN]
)
def test_a_sufficient_scope_is_never_refused(method: str, path: str) -> None:
    scope = next(needed(operation) for one, other, operation in operations() if (one, other) == (method, path))
    client = scoped()
    for held, token in TOKENS.items():
        if scope in INCLUDED[held]:
            answer = client.request(method, re.sub(r"\{[^}]*\}", "7", path), headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code not in (401, 403), answer.text


def test_what_holds_no_secret_needs_no_token() -> None:
    client = scoped()
    for path in ("/", "/favicon.ico", "/docs", "/page/anything", "/healthz", "/readyz"):
        assert client.get(path).status_code not in (401, 403)
    refused = client.get("/openapi.json")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


# --- settings -------------------------------------------------------------------------------------------------------


def test_tokens_come_from_the_environment_and_reach_child_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AZQ_DAEMON__TOKENS__GRAFANA__TOKEN", "seen-by-grafana")
    monkeypatch.setenv("AZQ_DAEMON__TOKENS__GRAFANA__SCOPE", "read")
    config = load()
    assert "seen-by-grafana" not in f"{config} {config.model_dump_json()}"
    for name, value in machine_environment(config, "daemon").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AZQ_DAEMON__TOKENS__GRAFANA__TOKEN")
    entry = load().daemon.tokens["grafana"]
    assert (entry.token.get_secret_value(), entry.scope) == ("seen-by-grafana", "read")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('tokens.a = { token = "short" }', "daemon.tokens.a.token"),
        ('tokens.a = { token = "long-enough", scope = "admin" }', "daemon.tokens.a.scope"),
        ('tokens.a = { token = "long-enough" }\ntokens.b = { token = "long-enough" }', "share one token"),
        ('token = "long-enough"\ntokens.b = { token = "long-enough" }', "share one token"),
        ('tls_certificate = "cert.pem"', "tls_key"),
        ("lease_s = 0", "daemon.lease_s"),
    ],
)
def test_settings_that_cannot_be_meant_are_named_without_their_secrets(tmp_path: Path, lines: str, words: str) -> None:
    file = tmp_path / "azq.toml"
    file.write_text(f"[daemon]\n{lines}\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert words in str(caught.value)
    assert "long-enough" not in str(caught.value)


# --- rates ----------------------------------------------------------------------------------------------------------


@example([1.0, 3.0, 2.183203014164497, 0.0], 0.5, 1)  # whose wait is 2 s and a rounding error
@given(st.lists(st.floats(0, 3), max_size=200), st.floats(0.5, 50), st.integers(1, 20))
def test_no_order_of_requests_passes_more_than_burst_and_rate(gaps: list[float], per_s: float, burst: int) -> None:
    now_s, passed = [0.0], 0
    limiter = Limiter(per_s, burst, clock_s=lambda: now_s[0])
    for gap in gaps:
        now_s[0] += gap
        wait_s = limiter.wait_s("a")
        passed += wait_s == 0
        assert 0 <= wait_s <= math.ceil(1 / per_s)
    assert passed <= burst + now_s[0] * per_s + 1e-6


def test_callers_are_counted_apart_and_forgotten_in_order() -> None:
    now_s = [0.0]
    limiter = Limiter(1.0, 2, clock_s=lambda: now_s[0], most_callers=3)
    assert [limiter.wait_s("a"), limiter.wait_s("a"), limiter.wait_s("a"), limiter.wait_s("b")] == [0, 0, 1, 0]
    now_s[0] = 1.0
    assert limiter.wait_s("a") == 0
    for caller in "cdefgh":
        limiter.wait_s(caller)
    assert len(limiter) == 3


def test_beyond_the_rate_is_a_429_with_its_wait_and_probes_stay_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.api.app.BURST_S", 3000.0)
    client = client_of(doubles={"rate_per_s": 0.001})
    assert [client.get("/v1/runs").status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = client.post("/v1/runs", json={"name": "late"})
    assert refused.status_code == 429
    assert 900 < int(refused.headers["retry-after"]) <= 1000, "what is left of a thousand seconds"
    assert refused.json()["type"] == "urn:azq:error:TooManyRequests"
    assert {client.get("/healthz").status_code for _ in range(9)} == {200}


def test_a_wrong_token_spends_the_address_and_not_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.api.app.BURST_S", 2000.0)
    client = client_of(token=SecretStr("right-token"), doubles={"rate_per_s": 0.001})
    codes = [client.get("/v1/runs", headers={"Authorization": "Bearer wrong"}).status_code for _ in range(3)]
    assert codes == [401, 401, 429]
    assert client.get("/v1/runs", headers={"Authorization": "Bearer right-token"}).status_code == 200


HOST = {"host": "azq.example:8080"}
OWN, OTHER = {"origin": "http://azq.example:8080"}, {"origin": "http://other.example:8080"}


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ({}, False),
        (OWN, False),
        (OTHER, True),
        ({"origin": "null"}, True),
        ({"origin": "http://[::1"}, True),
        ({"sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "cross-site"} | OWN, True),
        ({"sec-fetch-site": "same-origin"} | OTHER, False),
        ({"sec-fetch-site": ""} | OTHER, True),
    ],
    ids=str,
)
def test_a_browser_says_whose_page_asks(headers: dict[str, str], foreign: bool) -> None:
    assert (why_foreign("POST", Headers(HOST | headers)) != "") is foreign
    assert [why_foreign(method, Headers(HOST | headers)) for method in ("GET", "HEAD", "OPTIONS")] == ["", "", ""]


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({}, True),
        ({"content-length": "0"}, True),
        ({"content-length": "1"}, False),
        ({"transfer-encoding": "chunked"}, False),
        ({"content-type": "text/plain"}, False),
        ({"content-type": "multipart/form-data; boundary=x"}, False),
        ({"content-type": "text/plain; application/json", "content-length": "2"}, False),
        ({"content-type": "application/json"}, True),
        ({"content-type": "Application/JSON ; charset=utf-8", "content-length": "2"}, True),
    ],
    ids=str,
)
def test_a_body_is_json_or_there_is_none(headers: dict[str, str], taken: bool) -> None:
    assert (why_no_json("POST", Headers(headers)) == "") is taken


@pytest.mark.parametrize("name", FORWARDED)
def test_a_proxy_is_known_by_what_it_adds(name: str) -> None:
    assert forwarding(Headers(HOST | {name: ""})) == name
    assert forwarding(Headers(HOST)) == ""


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("https://azq.example", "azq.example", True),
        ("http://[::1]:8080", "[::1]:8080", True),
        ("http://azq.example", "azq.example:443", False),
        ("http://AZQ.example", "azq.EXAMPLE", True),
        ("file://azq.example", "azq.example", False),
        ("https://azq.example", "", False),
        ("https://127.0.0.1:80", "127.0.0.1:8080", False),
        ("http://127.0.0.1:8080.azq.example", "127.0.0.1:8080", False),
    ],
)
def test_an_origin_is_the_host_that_the_request_names(origin: str, host: str, same: bool) -> None:
    assert (why_foreign("POST", Headers({"origin": origin, "host": host})) == "") is same


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["POST", "PATCH", "PUT", "DELETE"]))
def test_no_origin_is_taken_for_this_host_but_its_own(origin: str, host: str, method: str) -> None:
    raw = Headers(raw=[(b"origin", origin.encode()), (b"host", host.encode())])
    if not why_foreign(method, raw):
        assert origin.lower().partition("://")[2].partition("/")[0].startswith(host.lower().partition(":")[0])
    assert why_foreign("GET", raw) == ""


@pytest.mark.parametrize("method", sorted(SAFE_METHODS))
def test_what_changes_nothing_may_look_as_it_likes(method: str) -> None:
    assert why_no_json(method, Headers({"content-type": "text/plain", "content-length": "7"})) == ""
