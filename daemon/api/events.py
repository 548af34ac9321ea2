"""Server-sent events: what becomes of one run, or of all of them, as it happens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import APIRouter, Header, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from azq import logs
from azq.errors import BrokerError
from azq.status.events import EventReader, LiveEvent, condition_events, parse_event_id
from daemon.api.access import IDENTITY, READ
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
    use.streams.enter(who, use.config.event_streams, use.config.event_streams_each)
    try:
        names = await _in_thread(request, partial(_names, use, run))
        reader = await _in_thread(request, partial(EventReader, use.bus, names, after))
    except BaseException:
        use.streams.leave(who)
        raise
    return EventStream(_told(request, use, run, reader), partial(use.streams.leave, who))


async def _told(request: Request, use: Services, run: str | None, reader: EventReader) -> AsyncIterator[str]:
    """The stream's text, until the client goes or the daemon ends."""
    yield f"retry: 2000\nid: {reader.start}\n\n"
    for name in reader.lost:
        yield _frame("gap", name, 0, {"remedy": "read the run anew; events before the next one are gone"})
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


def _conditions(use: Services, run: str | None, known: dict[str, frozenset[str]]) -> list[str]:
    """Conditions have no id: a reader that comes back hears of those that last."""
    texts = []
    runs = {run} if run is not None else {report.run for report in use.health.pulse.reports if report.run} | set(known)
    for name in sorted(runs):
        now = frozenset(use.health.conditions(name))
        texts += [_frame(kind, name, use.clock_ms(), about) for kind, about in condition_events(known.get(name, frozenset()), now)]
        known[name] = now
    return texts


def _text(event: LiveEvent) -> str:
    return f"id: {event.id}\n{_frame(event.kind, event.id.run, event.at_ms, event.about)}"


def _frame(kind: str, run: str, at_ms: int, about: Mapping[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps({'run': run, 'kind': kind, 'at_ms': at_ms, 'about': about})}\n\n"
