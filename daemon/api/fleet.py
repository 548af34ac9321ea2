"""The fleet and the daemon itself: queues, workers, health, readiness, figures for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import azq
from azq.config import Tag
from azq.errors import BrokerError
from azq.status.brokers import PlaneFacts
from azq.status.observe import gather
from azq.status.schemas import ERROR_URN, HealthOut, Name
from azq.status.summary import summarise
from azq.status.workers import QueueStatus, WorkerStatus, queue_table, tags_of, worker_status
from daemon.api import figures
from daemon.api.access import IDENTITY, READ, WORKER
from daemon.api.conventions import LINKED, Paged, answer, problem
from daemon.api.services import Services, Use
from daemon.serve.health import why_not_ready

router = APIRouter()


@router.get("/v1/queues", tags=["queues"], dependencies=[READ])
def list_queues(use: Use) -> list[QueueStatus]:
    """What waits and what runs in each queue, and the live workers and slots it has."""
    return queue_table(use.workers(), use.ledger.jobs(), use.clock_ms())


PATIENCE_S = 10.0  # without a tick before the daemon calls itself not ready


@router.get("/v1/workers", tags=["workers"], response_model=list[WorkerStatus], responses=LINKED, dependencies=[WORKER])
def list_workers(
    use: Use,
    pages: Paged,
    role: Annotated[str | None, Query(max_length=64)] = None,
    host: Annotated[str | None, Query(max_length=255)] = None,
    tag: Tag | None = None,
    run: Name | None = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
) -> Response:
    """Processes whose heartbeat lives, by role and name: self-play, eval and inference workers, learners, daemons."""
    place = pages.place("workers", str, str)
    beats = (
        beat
        for beat in use.workers()
        if (place is None or (beat.role, beat.worker) > place)
        and role in (None, beat.role)
        and host in (None, beat.host)
        and (tag is None or tag in tags_of(beat))
        and run in (None, beat.run)
    )
    page = pages.take("workers", beats, limit, lambda beat: (beat.role, beat.worker))
    now_ms = use.clock_ms()
    return answer([worker_status(beat, now_ms) for beat in page], pages.headers)


@router.get("/healthz", tags=["daemon"], response_model_exclude_none=True)
async def healthz(request: Request, use: Use) -> HealthOut:
    """The process answers, also while every thread waits for a broker that hangs. Needs no token; with one, shows the version."""
    return _health(request, use, "alive")


@router.get("/readyz", tags=["daemon"], response_model=HealthOut, response_model_exclude_none=True)
async def readyz(request: Request, use: Use) -> HealthOut | Response:
    """The last tick went through, broker round trip included; else 503 and why. Needs no token; with one, shows the version."""
    if why_not := why_not_ready(use.health.pulse, time.monotonic(), PATIENCE_S):
        return problem(
            HTTPStatus.SERVICE_UNAVAILABLE, why_not, kind=f"{ERROR_URN}NotReady", instance="/readyz", headers={"Retry-After": "2"}
        )
    return _health(request, use, "ready")


def _health(request: Request, use: Services, status: str) -> HealthOut:
    pulse = use.health.pulse
    version = azq.__version__ if request.scope[IDENTITY] else None
    return HealthOut(status=status, version=version, ticks=pulse.ticks, failed_ticks=pulse.failed_ticks)


@router.get("/metrics", tags=["daemon"], response_class=Response, dependencies=[READ])
def metrics(use: Use) -> Response:
    """Prometheus text format: the daemon, both brokers, every live process by its heartbeat, every run."""
    return Response(generate_latest(_FleetCollector(use)), media_type=CONTENT_TYPE_LATEST)


class _FleetCollector(Collector):
    """Everything the daemon can tell, at the moment it is asked."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        """The daemon's own figures always; the fleet's and the runs' while the control plane answers."""
        use = self._services
        yield from figures.of_daemon(use.health.pulse)
        try:
            workers = use.workers()
            facts = [gather(use.ledger, use.bus, view.record.run, workers, use.standings, use.firsts) for view in use.ledger.runs()]
        except BrokerError:
            yield from figures.of_planes([PlaneFacts("control"), *self._planes([])[1:]])
            return
        now_ms = use.clock_ms()
        yield from figures.of_planes(self._planes([fact.view.record.run for fact in facts]) or [PlaneFacts("control", up=True)])
        yield from figures.of_jobs(workers, [view for fact in facts for view in fact.jobs])
        yield from figures.of_workers(workers, now_ms)
        yield from figures.of_runs([summarise(fact, now_ms, team=use.team(fact.view.record.run)) for fact in facts])

    def _planes(self, runs: list[str]) -> list[PlaneFacts]:
        return [plane.read(runs) for plane in self._services.planes]
