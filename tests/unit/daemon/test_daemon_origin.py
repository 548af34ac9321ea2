"""Which requests come from a page of another site, which bodies are JSON, and what a proxy says: from headers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from daemon.api.origin import FORWARDED, SAFE_METHODS, forwarding, why_foreign, why_no_json

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
        ("https://azq.example", "azq.example:443", True),
        ("http://azq.example", "azq.example:443", False),
        ("http://[::1]:8080", "[::1]:8080", True),
        ("http://[::1]", "[::1]:80", True),
        ("http://AZQ.example", "azq.EXAMPLE", True),
        ("file://azq.example", "azq.example", False),
        ("https://azq.example", "", False),
    ],
)
def test_an_origin_is_a_host_with_the_port_of_its_scheme(origin: str, host: str, same: bool) -> None:
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
