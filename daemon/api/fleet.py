"""The fleet and the daemon itself: workers, health, readiness."""

from __future__ import annotations

import time
from http import HTTPStatus

from fastapi import APIRouter, Response

import azq
from daemon import observe
from daemon.api.problems import problem
from daemon.api.schemas import HealthOut
from daemon.api.scopes import WORKER
from daemon.api.services import Services, Use
from daemon.health import why_not_ready
from daemon.summary import WorkerStatus, worker_status

router = APIRouter()
PATIENCE_TICKS = 20  # of silence before the daemon calls itself not ready
SHORTEST_PATIENCE_S = 5.0


@router.get("/v1/workers", tags=["workers"], dependencies=[WORKER])
def list_workers(use: Use, role: str | None = None) -> list[WorkerStatus]:
    """Processes whose heartbeat lives: self-play, eval and inference workers, learners, daemons."""
    return [worker_status(beat, use.clock_ms()) for beat in observe.read_workers(use.bus) if role in (None, beat.role)]


@router.get("/healthz", tags=["daemon"])
def healthz(use: Use) -> HealthOut:
    """The process answers. Needs no token."""
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
