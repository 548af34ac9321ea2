"""What becomes of runs, as server-sent events, and who changed what: a line for each request that changes something."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from azq import logs
from azq.errors import BrokerError
from azq.status.events import KEPT_LINES, Auditor, EventReader, LiveEvent, condition_events, line_of, parse_event_id
from azq.status.schemas import AuditOut
from azq.wire import keys
from azq.wire.messages import AuditLine
from daemon.api.access import IDENTITY, OPERATE, READ, SAFE_METHODS, Identity, Scope
from daemon.api.conventions import LINKED, Paged
from daemon.api.services import Services, Use

MEDIA_TYPE = "text/event-stream"
POLL_S = 0.5
NAMES_LIFE_S = 2.0  # a new run is followed after so long at most; nothing of it is missed
HEARTBEAT_S = 10.0
READERS = 4  # threads that read for all streams together, so that a broker that hangs leaves the others free

T = TypeVar("T")
router = APIRouter(prefix="/v1", tags=["events"])
log = logs.get(__name__)
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=128, description="Go on after this event.")]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events `run.<state>`, `job.<state>`, `weights.published`, `weights.<deed>`, `match.finished`, `match.part`, "
        "`grade.finished`, `condition.began`, `condition.ended`, each with a JSON object {run, kind, at_ms, about}; `gap` where events "
        "asked for are gone.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


class EventStream(StreamingResponse):
    """Server-sent events; `at_end` is called once, however the stream ends, also when it never began."""

    media_type = MEDIA_TYPE

    def __init__(self, content: AsyncIterator[str], at_end: Callable[[], None]) -> None:
        super().__init__(content, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._at_end = at_end

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._at_end()


@router.get("/events", response_class=Response, responses=STREAM, dependencies=[READ])
async def all_events(request: Request, use: Use, last_event_id: LastEventId = None) -> EventStream:
    """What becomes of all runs, without end; a comment every ten seconds of silence."""
    return await _open(request, use, None, last_event_id)


@router.get("/runs/{run}/events", response_class=Response, responses=STREAM, dependencies=[READ])
async def run_events(run: str, request: Request, use: Use, last_event_id: LastEventId = None) -> EventStream:
    """What becomes of one run, without end; a comment every ten seconds of silence."""
    return await _open(request, use, run, last_event_id)


async def _open(request: Request, use: Services, run: str | None, last_event_id: str | None) -> EventStream:
    after = parse_event_id(last_event_id) if last_event_id else None
    who = request.scope[IDENTITY].name
    use.streams.enter(who)
    try:
        names = await _in_thread(request, partial(_names, use, run))
        reader = await _in_thread(request, partial(EventReader, use.bus, names, after))
    except BaseException:
        use.streams.leave(who)
        raise
    return EventStream(_frames(request, use, run, reader), partial(use.streams.leave, who))


async def _frames(request: Request, use: Services, run: str | None, reader: EventReader) -> AsyncIterator[str]:
    """The stream's text, until the client goes or the daemon ends."""
    yield f"retry: 2000\nid: {reader.start}\n\n"
    for name in reader.lost:
        yield _frame("gap", name, 0, {"remedy": "read the run again; events before the next one are gone"})
    conditions: dict[str, frozenset[str]] = {}
    spoke_s = named_s = time.monotonic()
    while not use.streams.closing and not await request.is_disconnected():
        texts = [_text(event) for event in await _read(request, reader)]
        texts += _conditions(use, run, conditions)
        if texts:
            spoke_s = time.monotonic()
            yield "".join(texts)
        elif time.monotonic() - spoke_s >= HEARTBEAT_S:
            spoke_s = time.monotonic()
            yield ": alive\n\n"
        if run is None and time.monotonic() - named_s >= NAMES_LIFE_S:
            named_s = time.monotonic()
            await _join(request, use, reader)
        await asyncio.sleep(POLL_S)


async def _read(request: Request, reader: EventReader) -> list[LiveEvent]:
    """What is new; nothing while the broker is away, as the stream goes on when it is back."""
    try:
        return await _in_thread(request, reader.read)
    except BrokerError:
        return []


async def _join(request: Request, use: Services, reader: EventReader) -> None:
    try:
        reader.join(await _in_thread(request, partial(_names, use, None)))
    except BrokerError as error:
        log.info("events_wait", reason=str(error))


def _names(use: Services, run: str | None) -> list[str]:
    views = use.ledger.runs() if run is None else [use.ledger.run(run)]
    return [view.record.run for view in views]


async def _in_thread(request: Request, work: Callable[[], T]) -> T:
    state = request.app.state
    if not hasattr(state, "event_readers"):
        state.event_readers = anyio.CapacityLimiter(READERS)
    return await anyio.to_thread.run_sync(work, limiter=state.event_readers)


def _conditions(use: Services, run: str | None, before: dict[str, frozenset[str]]) -> list[str]:
    """Conditions have no id: a reader that comes back hears of those that last."""
    texts = []
    runs = {run} if run is not None else {report.run for report in use.health.pulse.reports if report.run} | set(before)
    for name in sorted(runs):
        now = frozenset(use.health.conditions(name))
        texts += [_frame(kind, name, use.clock_ms(), about) for kind, about in condition_events(before.get(name, frozenset()), now)]
        before[name] = now
    return texts


def _text(event: LiveEvent) -> str:
    return f"id: {event.id}\n{_frame(event.kind, event.id.run, event.at_ms, event.about)}"


def _frame(kind: str, run: str, at_ms: int, about: Mapping[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps({'run': run, 'kind': kind, 'at_ms': at_ms, 'about': about})}\n\n"


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


audit_router = APIRouter(prefix="/v1/audit", tags=["audit"])


@audit_router.get("", responses=LINKED, dependencies=[OPERATE])
def list_audit(use: Use, pages: Paged, limit: Annotated[int, Query(ge=1, le=KEPT_LINES)] = 200) -> list[AuditOut]:
    """Changes asked for over REST by those who may make them, and made by commands, newest first; the newest 10,000 or so are kept."""
    page = pages.newest("audit", use.bus, keys.AUDIT, limit)
    return [AuditOut.of(line) for line in map(line_of, page) if line is not None]
