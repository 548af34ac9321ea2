"""The fleet and the daemon itself: workers, health, readiness."""

from __future__ import annotations

import time
from http import HTTPStatus
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Response

import azq
from daemon.api.answer import answer
from daemon.api.problems import problem
from daemon.api.schemas import HealthOut
from daemon.api.services import Services, Use
from daemon.health import why_not_ready
from daemon.team import WorkerStatus, worker_status

router = APIRouter()
PATIENCE_TICKS = 20  # of silence before the daemon calls itself not ready
SHORTEST_PATIENCE_S = 5.0


@router.get("/v1/workers", tags=["workers"], response_model=list[WorkerStatus])
def list_workers(use: Use, role: str | None = None, limit: Annotated[int | None, Query(ge=1)] = None) -> Response:
    """Processes whose heartbeat lives: self-play, eval and inference workers, learners, daemons; all of them, or the first."""
    now_ms = use.clock_ms()
    return answer([worker_status(beat, now_ms) for beat in islice((beat for beat in use.workers() if role in (None, beat.role)), limit)])


@router.get("/healthz", tags=["daemon"])
async def healthz(use: Use) -> HealthOut:
    """The process answers, also while every thread waits for a broker that hangs. Needs no token."""
    return _health(use, "alive")


@router.get("/readyz", tags=["daemon"], response_model=HealthOut)
def readyz(use: Use) -> HealthOut | Response:
    """The last tick went through, broker round trip included; 503 otherwise. Needs no token."""
    patience_s = max(SHORTEST_PATIENCE_S, PATIENCE_TICKS * use.config.tick_s)
    if why_not := why_not_ready(use.health.pulse, time.monotonic(), patience_s):
        return problem(
            HTTPStatus.SERVICE_UNAVAILABLE, why_not, kind="urn:azq:error:NotReady", instance="/readyz", headers={"Retry-After": "2"}
        )
    return _health(use, "ready")


def _health(use: Services, status: str) -> HealthOut:
    pulse = use.health.pulse
    return HealthOut(status=status, version=azq.__version__, ticks=pulse.ticks, failed_ticks=pulse.failed_ticks)
