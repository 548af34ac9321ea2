"""Whether a request that changes something may come from a page of a browser, and which page's. Pure.

A browser sends what any page tells it to, from inside the operator's network and with nobody watching; it also says so. Sec-Fetch-Site is
believed where it is sent (browsers keep pages from setting it), else Origin must be this host; curl and `azq.client` send neither. Forms,
which older browsers send without either, can have no JSON content type.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})
PORTS = {"http": "80", "https": "443"}
JSON = "application/json"
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def why_foreign(method: str, headers: Headers) -> str:
    """Why a request is that of another site's page; empty where it is not."""
    if method in SAFE_METHODS:
        return ""
    if site := headers.get("sec-fetch-site"):
        return "" if site in OWN_SITES else f"a page of another site asks for this ({site}); use this daemon's own dashboard, or curl"
    origin = headers.get("origin")
    if origin is None or _is_host(origin, headers.get("host", "")):
        return ""
    return "a page of another origin asks for this; use this daemon's own dashboard, or let the proxy before it pass on the Host header"


def why_no_json(method: str, headers: Headers) -> str:
    """Why a request's body cannot be taken for JSON that its sender meant to send; empty where it can, or there is none."""
    if method in SAFE_METHODS:
        return ""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "")
    if (not kind and not has_body) or kind.partition(";")[0].strip().lower() == JSON:
        return ""
    return f"a body must be JSON: send `Content-Type: {JSON}`, or no body and no content type"


def forwarding(headers: Headers) -> str:
    """The header by which a proxy says that it passes on what others ask; empty where none does."""
    return next((name for name in FORWARDED if name in headers), "")


def _is_host(origin: str, host: str) -> bool:
    """Whether an Origin header names the host that was asked, each with the port that its scheme has where none is said."""
    try:
        said = urlsplit(origin)
    except ValueError:
        return False
    port = PORTS.get(said.scheme)
    if port is None or not host:
        return False
    return _with_port(said.netloc, port) == _with_port(host, port)


def _with_port(place: str, port: str) -> str:
    place = place.lower()
    return place if place.rpartition("]")[2].rpartition(":")[1] else f"{place}:{port}"
