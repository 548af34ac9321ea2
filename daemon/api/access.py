"""Who may ask, and for what: bearer tokens with scopes, which each route declares (`dependencies=[READ]`); from which pages; how much.

A browser sends what any page tells it to, from inside the operator's network and unseen; it also says so. Sec-Fetch-Site is believed
where it is sent (browsers keep pages from setting it), else Origin must be this host; curl and `azq.client` send neither. Forms,
which older browsers send without either, can have no JSON content type. All of that is looked at before anything else, in plain ASGI.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated

from fastapi import Request, Security
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer, SecurityScopes
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from azq.config import DaemonConfig
from azq.config.access import is_loopback
from azq.errors import AccessDenied, AzqError, InvalidRequest, TooManyRequests
from azq.process.webserver import client_of
from daemon.api.conventions import BodyTooLarge, problem, urn
from daemon.api.limits import Limiter


class Scope(StrEnum):
    """What a route asks of a token: operate includes read, read includes worker."""

    WORKER = "worker"  # what a machine that joins must know
    READ = "read"  # everything there is to see
    OPERATE = "operate"  # everything


_ORDER = tuple(Scope)  # each includes those before it


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks: the name of a token in the settings, never the token."""

    name: str
    scope: Scope

    def may(self, scope: Scope) -> bool:
        """True when this token's scope includes the one that is needed."""
        return _ORDER.index(scope) <= _ORDER.index(self.scope)


LOCAL = Identity("local", Scope.OPERATE)  # where no token is set, this machine may do everything


@dataclass(frozen=True, slots=True)
class Keyring:
    """All tokens of the settings with the identity that each one proves."""

    entries: tuple[tuple[Identity, bytes], ...]

    @classmethod
    def of(cls, config: DaemonConfig) -> Keyring:
        """From `daemon.token` and `daemon.tokens`."""
        first = [(Identity("daemon.token", Scope.OPERATE), config.token)]
        named = [(Identity(name, Scope(entry.scope)), entry.token) for name, entry in config.tokens.items()]
        return cls(tuple((who, secret.get_secret_value().encode()) for who, secret in [*first, *named] if secret.get_secret_value()))

    def __bool__(self) -> bool:
        return bool(self.entries)

    def identify(self, authorization: str) -> Identity | None:
        """Who the header proves to be asking; takes the same time for every wrong token, as every entry is compared."""
        scheme, _, sent = authorization.partition(" ")
        offered = sent.strip().encode()
        proven = [who for who, token in self.entries if hmac.compare_digest(offered, token)]
        return proven[0] if proven and scheme.lower() == "bearer" else None


IDENTITY = "azq.identity"  # where the guard leaves who asks, in the ASGI scope

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="`daemon.token`, or one of `daemon.tokens` whose scope (worker < read < operate) includes the one named here",
)


async def _allowed(needs: SecurityScopes, request: Request, _: Annotated[object, Security(_bearer)]) -> None:
    identity: Identity = request.scope[IDENTITY]
    for needed in needs.scopes:
        if not identity.may(Scope(needed)):
            raise AccessDenied(f"token {identity.name!r} has scope {identity.scope}, this needs scope {needed}; ask with another token")


WORKER = Security(_allowed, scopes=[Scope.WORKER.value])
READ = Security(_allowed, scopes=[Scope.READ.value])
OPERATE = Security(_allowed, scopes=[Scope.OPERATE.value])


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})
JSON = "application/json"
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def why_foreign(method: str, headers: Headers) -> str:
    """Why a request is that of another site's page; empty where it is not."""
    if method in SAFE_METHODS:
        return ""
    if site := headers.get("sec-fetch-site"):
        return "" if site in OWN_SITES else f"a page of another site asks for this ({site}); use this daemon's own dashboard, or curl"
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    if origin is None or origin.lower() in (f"http://{host}", f"https://{host}"):
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


MAX_BODY_BYTES = 1024 * 1024
PROBES = frozenset({"/healthz", "/readyz"})  # for machines that hold no token, as often as they like
STATIC_PATHS = frozenset({"/", "/play", "/favicon.ico", "/docs"})
STATIC_FOLDERS = ("/page/", "/web/", "/assets-")  # pages hold no secret; each asks for the token and sends it with each request


class Guard:
    """Refuses before routing: 401 without a token, 403 for pages of other sites, 429 beyond the rate, 413 and 415 for bodies; 421 and 403
    for a foreign Host or a proxy's where no token is set.

    The Host check keeps web pages that a browser on this machine shows from reaching a daemon without token by DNS rebinding.
    """

    def __init__(self, app: ASGIApp, keyring: Keyring, make_limiter: Callable[[], Limiter]) -> None:
        self._app = app
        self._keyring = keyring
        self._limiter = make_limiter()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, headers = scope["path"], Headers(scope=scope)
        identity = self._keyring.identify(headers.get("authorization", "")) if self._keyring else LOCAL
        refusal = (
            self._too_fast(path, identity, scope)
            or _not_allowed(path, identity, headers)
            or _not_meant(path, scope["method"], headers)
            or _too_long(path, headers)
        )
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope[IDENTITY] = identity
        await self._app(scope, _counted(receive), send)

    def _too_fast(self, path: str, identity: Identity | None, scope: AsgiScope) -> JSONResponse | None:
        if path in PROBES:
            return None
        named = identity if identity is not LOCAL else None
        address = client_of((scope.get("client") or ("unknown", 0))[0])
        wait_s = self._limiter.wait_s(f"token {named.name}" if named else f"address {address}")
        if not wait_s:
            return None
        text = f"too many requests; ask again in {wait_s} s"
        return _refusal(HTTPStatus.TOO_MANY_REQUESTS, text, path, TooManyRequests, {"Retry-After": str(wait_s)})


def _not_allowed(path: str, identity: Identity | None, headers: Headers) -> JSONResponse | None:
    if path in PROBES or path in STATIC_PATHS or path.startswith(STATIC_FOLDERS):
        return None
    if identity is None:
        text = (
            "this daemon asks for a token: send `Authorization: Bearer TOKEN`, one of its settings, or the one in .token of its home; "
            "azq finds that where AZQ_HOME or its folder is the daemon's, and takes another from AZQ_DAEMON__TOKEN"
        )
        return _refusal(HTTPStatus.UNAUTHORIZED, text, path, AccessDenied, {"WWW-Authenticate": "Bearer"})
    if identity is LOCAL and not is_loopback(_host_name(headers.get("host", ""))):
        text = "without a token only requests to a loopback address are answered; set daemon.token"
        return _refusal(HTTPStatus.MISDIRECTED_REQUEST, text, path)
    if identity is LOCAL and (header := forwarding(headers)):
        text = f"a proxy passes this on ({header}), which would have full rights; set daemon.token"
        return _refusal(HTTPStatus.FORBIDDEN, text, path)
    return None


def _too_long(path: str, headers: Headers) -> JSONResponse | None:
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) <= MAX_BODY_BYTES:
        return None
    return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, BodyTooLarge(MAX_BODY_BYTES).detail, instance=path)


def _counted(receive: Receive) -> Receive:
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY_BYTES:
            raise BodyTooLarge(MAX_BODY_BYTES)
        return message

    return counted


def _refusal(
    status: HTTPStatus, text: str, path: str, kind: type[AzqError] = AccessDenied, headers: dict[str, str] | None = None
) -> JSONResponse:
    return problem(status, text, kind=urn(kind), instance=path, headers=headers)


def _not_meant(path: str, method: str, headers: Headers) -> JSONResponse | None:
    if text := why_foreign(method, headers):
        return _refusal(HTTPStatus.FORBIDDEN, text, path)
    if text := why_no_json(method, headers):
        return _refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text, path, InvalidRequest)
    return None


def _host_name(header: str) -> str:
    """The Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
