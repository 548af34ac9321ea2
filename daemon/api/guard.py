"""Who asks, from where, how often and how much: token, origin, Host, rate, kind and size of the body. Plain ASGI, before anything else."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from azq.config.access import is_loopback
from azq.errors import AccessDenied, AzqError, InvalidRequest, TooManyRequests
from azq.process.webserver import client_of
from daemon.api.access import IDENTITY, LOCAL, Identity, Keyring, forwarding, why_foreign, why_no_json
from daemon.api.conventions import BodyTooLarge, problem, urn
from daemon.api.limits import Limiter

MAX_BODY_BYTES = 1024 * 1024
PROBES = frozenset({"/healthz", "/readyz"})  # asked by machines that hold no token, as often as they like
STATIC_PATHS = frozenset({"/", "/play", "/favicon.ico", "/docs"})
STATIC_FOLDERS = ("/page/", "/web/")  # pages hold no secret; each asks for the token and sends it with each request


class Guard:
    """Refuses before routing: 401 without a token, 403 for pages of other sites, 429 beyond the rate, 413 and 415 for bodies; 421 and 403
    for a foreign Host or a proxy's where no token is set.

    The Host check keeps web pages that a browser on this machine shows from reaching a daemon without token by DNS rebinding.
    """

    def __init__(self, app: ASGIApp, keyring: Keyring, make_limiter: Callable[[], Limiter]) -> None:
        self._app = app
        self._keyring = keyring
        self._limiter = make_limiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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

    def _too_fast(self, path: str, identity: Identity | None, scope: Scope) -> JSONResponse | None:
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
