"""The fleet and the daemon itself: workers, health, readiness."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

import azq
from azq.config import Tag
from azq.status.queues import tags_of
from azq.status.schemas import HealthOut, Name
from azq.status.workers import WorkerStatus, worker_status
from daemon.api.answer import answer
from daemon.api.paging import LINKED, Cursor, decode_cursor, encode_cursor, link_next, take_page
from daemon.api.problems import problem
from daemon.api.scopes import IDENTITY, WORKER
from daemon.api.services import Services, Use
from daemon.serve.health import why_not_ready

router = APIRouter()
PATIENCE_TICKS = 20  # of silence before the daemon calls itself not ready
SHORTEST_PATIENCE_S = 5.0


@router.get("/v1/workers", tags=["workers"], response_model=list[WorkerStatus], responses=LINKED, dependencies=[WORKER])
def list_workers(
    use: Use,
    request: Request,
    role: Annotated[str | None, Query(max_length=64)] = None,
    host: Annotated[str | None, Query(max_length=255)] = None,
    tag: Tag | None = None,
    run: Name | None = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
    cursor: Cursor = None,
) -> Response:
    """Processes whose heartbeat lives, by role and name: self-play, eval and inference workers, learners, daemons."""
    place = decode_cursor("workers", cursor, str, str)
    found = (
        beat
        for beat in use.workers()
        if (place is None or (beat.role, beat.worker) > place)
        and role in (None, beat.role)
        and host in (None, beat.host)
        and (tag is None or tag in tags_of(beat))
        and run in (None, beat.run)
    )
    page, after = take_page(found, limit, lambda beat: encode_cursor("workers", beat.role, beat.worker))
    now_ms = use.clock_ms()
    response = answer([worker_status(beat, now_ms) for beat in page])
    link_next(request, response, after)
    return response


@router.get("/healthz", tags=["daemon"])
async def healthz(request: Request, use: Use) -> HealthOut:
    """The process answers, also while every thread waits for a broker that hangs. Needs no token; tells its version to whoever has one."""
    return _health(request, use, "alive")


@router.get("/readyz", tags=["daemon"], response_model=HealthOut)
def readyz(request: Request, use: Use) -> HealthOut | Response:
    """The last tick went through, broker round trip included; 503 otherwise. Needs no token; tells its version to whoever has one."""
    patience_s = max(SHORTEST_PATIENCE_S, PATIENCE_TICKS * use.config.tick_s)
    if why_not := why_not_ready(use.health.pulse, time.monotonic(), patience_s):
        return problem(
            HTTPStatus.SERVICE_UNAVAILABLE, why_not, kind="urn:azq:error:NotReady", instance="/readyz", headers={"Retry-After": "2"}
        )
    return _health(request, use, "ready")


def _health(request: Request, use: Services, status: str) -> HealthOut:
    pulse = use.health.pulse
    version = azq.__version__ if request.scope[IDENTITY] else ""
    return HealthOut(status=status, version=version, ticks=pulse.ticks, failed_ticks=pulse.failed_ticks)
