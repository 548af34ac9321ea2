"""Figures for Prometheus, read afresh at each scrape. The registry belongs to one app, not to the process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from azq.errors import BrokerError
from azq.status import observe
from azq.status.brokers import PlaneFacts
from azq.status.summary import summarise
from daemon.api import figures
from daemon.api.scopes import READ
from daemon.api.services import Services, Use

router = APIRouter()


@router.get("/metrics", tags=["daemon"], response_class=Response, dependencies=[READ])
def metrics(use: Use) -> Response:
    """Prometheus text format: the daemon, both brokers, every live process by its heartbeat, every run."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fleet(use))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Fleet(Collector):
    """Everything the daemon can tell, at the moment it is asked."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time: registering must not touch the broker."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The daemon's own figures always; the fleet's and the runs' while the control plane answers."""
        use = self._services
        yield from figures.of_daemon(use.health.pulse)
        try:
            workers = use.workers()
            facts = [observe.gather(use.ledger, use.bus, view.record.run, workers, use.standings) for view in use.ledger.runs()]
        except BrokerError:
            yield from figures.of_planes([PlaneFacts("control"), *self._planes([])[1:]])
            return
        now_ms = use.clock_ms()
        yield from figures.of_planes(self._planes([fact.view.record.run for fact in facts]) or [PlaneFacts("control", up=True)])
        yield from figures.of_jobs(workers, [view for fact in facts for view in fact.jobs])
        yield from figures.of_workers(workers, now_ms)
        yield from figures.of_runs([summarise(fact, now_ms, team=use.team(fact.view.record.run)) for fact in facts])

    def _planes(self, runs: list[str]) -> list[PlaneFacts]:
        return [plane.look(runs) for plane in self._services.planes]
