"""Who may ask, and how much: bearer token, Host header, size of the body. Plain ASGI, before anything else runs."""

from __future__ import annotations

from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemon.api.auth import is_loopback, may_pass
from daemon.api.problems import problem

MAX_BODY_BYTES = 1024 * 1024
OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class Guard:
    """Refuses before routing: 401 without the token, 421 for a foreign Host where there is no token, 413 for a body too large.

    The Host check keeps web pages that a browser on this machine shows from reaching a daemon without token by DNS rebinding.
    """

    def __init__(self, app: ASGIApp, token: str, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._token = token
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers or passes on one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope["path"], Headers(scope=scope))
        if refusal is not None:
            status, detail = refusal
            headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else None
            await problem(status, detail, instance=scope["path"], headers=headers)(scope, receive, send)
            return
        await self._app(scope, self._counted(receive), send)

    def _refusal(self, path: str, headers: Headers) -> tuple[HTTPStatus, str] | None:
        if path not in OPEN_PATHS:
            if self._token and not may_pass(self._token, headers.get("authorization", "")):
                return HTTPStatus.UNAUTHORIZED, "this daemon asks for a bearer token: send `Authorization: Bearer <daemon.token>`"
            if not self._token and not is_loopback(_host_name(headers.get("host", ""))):
                return HTTPStatus.MISDIRECTED_REQUEST, "without a token only requests to a loopback address are answered; set daemon.token"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._max_body_bytes:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large()
        return None

    def _counted(self, receive: Receive) -> Receive:
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._max_body_bytes:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large())
            return message

        return counted

    def _too_large(self) -> str:
        return f"a request body may have {self._max_body_bytes} bytes"


def _host_name(header: str) -> str:
    """The Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
