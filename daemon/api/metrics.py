"""Figures for Prometheus, read afresh at each scrape. The registry belongs to one app, not to the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from azq.arena.rating import rate
from azq.errors import BrokerError
from azq.ledger.types import JobView
from azq.wire.messages import Heartbeat
from daemon import observe
from daemon.api.services import Services, Use
from daemon.fleet import live_queues, slots_of
from daemon.state import queue_of
from daemon.summary import RunStatus, summarise

router = APIRouter()

# (name, help, field of RunStatus)
RUN_GAUGES = (
    ("azq_games_per_s", "Finished games per second.", "games_per_s"),
    ("azq_simulations_per_s", "Search simulations per second.", "simulations_per_s"),
    ("azq_evaluations_per_s", "Leaves evaluated per second.", "evaluations_per_s"),
    ("azq_mean_batch", "Leaves per forward pass.", "mean_batch"),
    ("azq_open_games", "Games begun and not finished.", "open_games"),
    ("azq_samples", "Samples in the segment log.", "samples"),
    ("azq_samples_per_insert", "Samples trained on per sample inserted.", "samples_per_insert"),
    ("azq_learner_live", "1 while the learner's status lives.", "learner_live"),
    ("azq_learner_step", "Training steps done.", "learner_step"),
    ("azq_loss_policy", "Policy loss.", "loss_policy"),
    ("azq_loss_value", "Value loss.", "loss_value"),
    ("azq_selfplay_stalled", "1 while the limiter holds self-play back.", "selfplay_stalled"),
    ("azq_weight_version", "Newest published weight version.", "weight_version"),
    ("azq_policy_lag", "Versions between the newest weights and those self-play uses.", "policy_lag"),
)
LEDGER_COUNTERS = ("opened", "finished", "abandoned", "inserted", "duplicates_dropped")


@router.get("/metrics", tags=["daemon"], response_class=Response)
def metrics(use: Use) -> Response:
    """Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_FleetCollector(use))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _FleetCollector(Collector):
    """Everything the daemon can tell, at the moment it is asked."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time: registering must not touch the broker."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The daemon's own figures always; the fleet's and the runs' while the broker answers."""
        pulse = self._services.health.pulse
        yield CounterMetricFamily("azq_daemon_ticks", "Looks at the control plane.", value=pulse.ticks)
        yield CounterMetricFamily("azq_daemon_failed_ticks", "Looks that failed.", value=pulse.failed_ticks)
        yield GaugeMetricFamily("azq_unroutable_queues", "Queues with work and no live worker.", value=len(pulse.unroutable))
        try:
            workers, statuses, jobs = self._read()
        except BrokerError:
            yield GaugeMetricFamily("azq_broker_up", "1 while the control plane answers.", value=0)
            return
        yield GaugeMetricFamily("azq_broker_up", "1 while the control plane answers.", value=1)
        yield from _fleet(workers, jobs)
        yield from _runs(statuses)

    def _read(self) -> tuple[tuple[Heartbeat, ...], list[RunStatus], list[JobView]]:
        use = self._services
        workers = observe.read_workers(use.bus)
        facts = [observe.gather(use.ledger, use.bus, view.record.run, workers) for view in use.ledger.runs()]
        statuses = [summarise(fact, use.clock_ms(), rate(fact.matches)) for fact in facts]
        return workers, statuses, [view for fact in facts for view in fact.jobs]


def _fleet(workers: tuple[Heartbeat, ...], jobs: list[JobView]) -> Iterator[Metric]:
    live = GaugeMetricFamily("azq_workers", "Processes with a live heartbeat.", labels=["role"])
    for role, count in sorted(Counter(beat.role for beat in workers).items()):
        live.add_metric([role], count)
    slots = GaugeMetricFamily("azq_queue_slots", "Jobs that live workers can hold.", labels=["queue"])
    for queue in live_queues(workers):
        slots.add_metric([queue], slots_of(workers, queue))
    counted = GaugeMetricFamily("azq_jobs", "Jobs that have not ended.", labels=["queue", "state"])
    for (queue, state), count in sorted(Counter((queue_of(view.job.kind, view.job.tag), str(view.state)) for view in jobs).items()):
        counted.add_metric([queue, state], count)
    yield from (live, slots, counted)


def _runs(statuses: list[RunStatus]) -> Iterator[Metric]:
    for name, text, attribute in RUN_GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=["run"])
        for status in statuses:
            if (value := getattr(status, attribute)) is not None:
                gauge.add_metric([status.run], float(value))
        yield gauge
    for name in LEDGER_COUNTERS:
        counter = CounterMetricFamily(f"azq_games_{name}", f"Games {name.replace('_', ' ')}.", labels=["run"])
        for status in statuses:
            counter.add_metric([status.run], getattr(status.ledger, name))
        yield counter
    balanced = GaugeMetricFamily("azq_ledger_balanced", "1 while the ledger adds up.", labels=["run"])
    state = GaugeMetricFamily("azq_run_state", "1 for the state a run is in.", labels=["run", "state"])
    elo = GaugeMetricFamily("azq_elo", "Elo of the newest rated weights.", labels=["run"])
    for status in statuses:
        balanced.add_metric([status.run], float(status.ledger.balanced))
        state.add_metric([status.run, str(status.state)], 1)
        if status.strength.elo is not None:
            elo.add_metric([status.run], status.strength.elo)
    yield from (balanced, state, elo)
