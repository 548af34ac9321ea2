"""Who changed what: a line for each request that changes something, of those who may, and the list of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from azq.status.audit import KEPT_LINES, Auditor, line_of
from azq.status.schemas import AuditOut
from azq.wire import keys
from azq.wire.messages import AuditLine
from daemon.api.access import IDENTITY, OPERATE, Identity, Scope
from daemon.api.conventions import LINKED, Paged
from daemon.api.origin import SAFE_METHODS
from daemon.api.services import Use

ONLY_ASKED = "only_asked"
LONGEST = 300  # characters of a path or key that somebody made up


async def _only_asks(request: Request) -> None:
    setattr(request.state, ONLY_ASKED, True)


QUESTION = Depends(_only_asks)  # of a route that changes nothing, though its questions need a body


class Trail:
    """Notes a request after it was answered, whatever the answer; not one that only asked.

    Those whose token may change nothing are answered 403 and leave no line: they could else fill the stream until it forgets the others.
    """

    def __init__(self, app: ASGIApp, auditor: Auditor, clock_ms: Callable[[], int]) -> None:
        self._app = app
        self._auditor = auditor
        self._clock_ms = clock_ms

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        who: Identity | None = scope.get(IDENTITY)
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS or who is None or not who.may(Scope.OPERATE):
            await self._app(scope, receive, send)
            return
        status = 500  # of what raises

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            if not scope.get("state", {}).get(ONLY_ASKED):
                self._auditor.note(self._line(scope, who, status))

    def _line(self, scope: AsgiScope, who: Identity, status: int) -> AuditLine:
        headers = Headers(scope=scope)
        return AuditLine(
            at_ms=self._clock_ms(),
            who=who.name,
            what=f"{scope['method']} {scope['path']}"[:LONGEST],
            address=(scope.get("client") or ("unknown", 0))[0],
            status=status,
            about=scope.get("state", {}).get("about", ""),
            key=headers.get("idempotency-key", headers.get("x-request-id", ""))[:LONGEST],
        )


router = APIRouter(prefix="/v1/audit", tags=["audit"])


@router.get("", responses=LINKED, dependencies=[OPERATE])
def list_audit(use: Use, pages: Paged, limit: Annotated[int, Query(ge=1, le=KEPT_LINES)] = 200) -> list[AuditOut]:
    """Changes asked for over REST by those who may make them, and made by commands, newest first; the newest 10,000 or so are kept."""
    page = pages.newest("audit", use.bus, keys.AUDIT, limit)
    return [AuditOut.of(line) for line in map(line_of, page) if line is not None]
