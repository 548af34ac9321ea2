"""What is known of the fleet, as Prometheus metrics. Pure; names end in their unit, counters in `_total`, as Prometheus asks.

Quantiles are gauges over the newest observations of one process: they can be compared and bounded, not added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from azq import metrics, phases
from azq.ledger.types import JobView
from azq.metrics import Figure
from azq.status.brokers import PlaneFacts
from azq.status.queues import live_queues, slots_of
from azq.status.summary import RunStatus
from azq.wire.messages import Heartbeat
from daemon.serve.health import Pulse

# (name, help, value of a run's status; None: nothing to tell yet)
RUN_GAUGES: tuple[tuple[str, str, Callable[[RunStatus], float | None]], ...] = (
    ("azq_games_per_s", "Finished games per second.", lambda run: run.games_per_s),
    ("azq_simulations_per_s", "Search simulations per second.", lambda run: run.simulations_per_s),
    ("azq_evaluations_per_s", "Leaves evaluated per second.", lambda run: run.evaluations_per_s),
    ("azq_mean_batch", "Leaves per forward pass.", lambda run: run.mean_batch),
    ("azq_open_games", "Games begun and not finished.", lambda run: run.open_games),
    ("azq_samples", "Samples in the segment log.", lambda run: run.samples),
    ("azq_window_samples", "Samples the learner draws from.", lambda run: run.window),
    ("azq_samples_per_s", "Samples trained on per second.", lambda run: run.samples_per_s),
    ("azq_samples_per_insert", "Samples trained on per sample inserted.", lambda run: run.samples_per_insert),
    ("azq_learner_live", "1 while the learner's status lives.", lambda run: run.learner_live),
    ("azq_learner_waiting", "1 while the limiter holds the learner back.", lambda run: run.learner_waiting),
    ("azq_learner_step", "Training steps done.", lambda run: run.learner_step),
    ("azq_samples_processed", "Samples trained on, of the whole run.", lambda run: run.ranks.samples_processed),
    ("azq_ranks_healthy", "Processes that train.", lambda run: run.ranks.healthy),
    ("azq_ranks_failed", "Processes that should train and do not.", lambda run: run.ranks.failed),
    ("azq_ranks_fallback_active", "1 while training goes on with fewer processes than configured.", lambda run: run.ranks.fallback_active),
    ("azq_train_batch_seconds", "One training step, waiting for other ranks included.", lambda run: run.ranks.batch_s),
    ("azq_train_sync_seconds", "Waiting for other ranks in one training step.", lambda run: run.ranks.sync_s),
    ("azq_scaling_efficiency", "Samples per second / what the ranks would do if none waited.", lambda run: run.ranks.efficiency),
    ("azq_learning_rate", "Learning rate.", lambda run: run.learning_rate),
    ("azq_loss_policy", "Policy loss.", lambda run: run.loss_policy),
    ("azq_loss_value", "Value loss.", lambda run: run.loss_value),
    ("azq_selfplay_stalled", "1 while the limiter holds self-play back.", lambda run: run.selfplay_stalled),
    ("azq_weight_version", "Newest published weight version.", lambda run: run.weight_version),
    ("azq_policy_lag", "Versions between the newest weights and those self-play uses.", lambda run: run.policy_lag),
    ("azq_progress", "Share of the run's horizon that is done.", lambda run: run.progress),
    ("azq_ledger_balanced", "1 while the ledger adds up.", lambda run: run.ledger.balanced),
    ("azq_elo", "Elo of the newest rated weights.", lambda run: run.strength.elo),
    ("azq_error_share", "Share of moves that lose a result class, newest graded weights.", lambda run: run.strength.error_share),
)
LEDGER_COUNTERS = ("opened", "finished", "abandoned", "inserted", "duplicates_dropped")

WORKER_PHASES = (
    ("azq_phase_wall_share", "Share of a process's wall time by phase; of several loops the mean.", phases.WALL),
    ("azq_phase_cpu_cores", "CPU cores that a process uses by phase.", phases.CPU),
    ("azq_phase_device_share", "Share of wall time that a phase has on a process's GPU.", phases.DEVICE),
)
WHO = ["worker", "role", "host"]


def of_daemon(pulse: Pulse) -> Iterator[Metric]:
    """The daemon itself."""
    yield CounterMetricFamily("azq_daemon_ticks", "Looks at the control plane.", value=pulse.ticks)
    yield CounterMetricFamily("azq_daemon_failed_ticks", "Looks that failed.", value=pulse.failed_ticks)
    yield GaugeMetricFamily("azq_unroutable_queues", "Queues with work and no live worker.", value=len(pulse.unroutable))


def of_planes(planes: Sequence[PlaneFacts]) -> Iterator[Metric]:
    """The brokers; the backlog of the control plane is samples, that of the data plane evaluation requests."""
    up = GaugeMetricFamily("azq_broker_up", "1 while the plane answers.", labels=["plane"])
    used = GaugeMetricFamily("azq_broker_used_memory_bytes", "Memory of the plane's server.", labels=["plane"])
    limit = GaugeMetricFamily("azq_broker_max_memory_bytes", "Limit of the plane's server; 0: none.", labels=["plane"])
    dead = CounterMetricFamily("azq_dead_letters", "Frames that nobody could read.", labels=["plane"])
    waiting = GaugeMetricFamily("azq_stream_entries", "Entries that nobody acknowledged yet.", labels=["plane", "run"])
    for plane in planes:
        up.add_metric([plane.plane], float(plane.up))
        if not plane.up:
            continue
        used.add_metric([plane.plane], plane.used_bytes)
        limit.add_metric([plane.plane], plane.limit_bytes)
        dead.add_metric([plane.plane], plane.dead_letters)
        for run, entries in plane.waiting.items():
            waiting.add_metric([plane.plane, run], entries)
    yield from (up, used, limit, dead, waiting)


def of_jobs(workers: Sequence[Heartbeat], jobs: Sequence[JobView]) -> Iterator[Metric]:
    """Queues: what live workers can hold and what waits."""
    live = GaugeMetricFamily("azq_workers", "Processes with a live heartbeat.", labels=["role"])
    for role, count in sorted(Counter(beat.role for beat in workers).items()):
        live.add_metric([role], count)
    slots = GaugeMetricFamily("azq_queue_slots", "Jobs that live workers can hold.", labels=["queue"])
    for queue in live_queues(workers):
        slots.add_metric([queue], slots_of(workers, queue))
    counted = GaugeMetricFamily("azq_jobs", "Jobs that have not ended.", labels=["queue", "state"])
    for (queue, state), count in sorted(Counter((view.job.queue, str(view.state)) for view in jobs).items()):
        counted.add_metric([queue, state], count)
    yield from (live, slots, counted)


def of_workers(workers: Sequence[Heartbeat], now_ms: int) -> Iterator[Metric]:
    """Every live process by what its heartbeat says; a figure that a role does not have is left out."""
    age = GaugeMetricFamily("azq_heartbeat_age_seconds", "Since a process's last heartbeat.", labels=WHO)
    started = GaugeMetricFamily("azq_process_start_time_seconds", "When a process started, in seconds since 1970.", labels=WHO)
    for beat in workers:
        age.add_metric(_who(beat), max(0, now_ms - beat.sent_ms) / 1000)
        started.add_metric(_who(beat), beat.started_ms / 1000)
    yield from (age, started)
    yield from (_family(figure, workers) for figure in metrics.FIGURES if figure.metric)
    for name, text, prefix in WORKER_PHASES:
        family = GaugeMetricFamily(name, text, labels=[*WHO, "phase"])
        for beat in workers:
            for phase, share in phases.part(beat.rates, prefix).items():
                family.add_metric([*_who(beat), phase], share)
        yield family


def of_runs(statuses: Sequence[RunStatus]) -> Iterator[Metric]:
    """Every run, its ledger included."""
    for name, text, value_of in RUN_GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=["run"])
        for status in statuses:
            if (value := value_of(status)) is not None:
                gauge.add_metric([status.run], float(value))
        yield gauge
    for name in LEDGER_COUNTERS:
        counter = CounterMetricFamily(f"azq_games_{name}", f"Games {name.replace('_', ' ')}.", labels=["run"])
        for status in statuses:
            counter.add_metric([status.run], getattr(status.ledger, name))
        yield counter
    state = GaugeMetricFamily("azq_run_state", "1 for the state a run is in.", labels=["run", "state"])
    for status in statuses:
        state.add_metric([status.run, str(status.state)], 1)
    yield state


def _family(figure: Figure, workers: Sequence[Heartbeat]) -> Metric:
    """The figure of every process that has it."""
    make = CounterMetricFamily if figure.counts_up else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily
    if figure.quantiles:
        family = make(figure.metric, figure.help, labels=[*WHO, "quantile"])
        names = {metrics.at_quantile(figure.name, at): [f"{at:g}"] for at in metrics.QUANTILES}
    else:
        family, names = make(figure.metric, figure.help, labels=WHO), {figure.name: []}
    for name, label in names.items():
        for beat in workers:
            if name in beat.rates:
                family.add_metric([*_who(beat), *label], figure.factor * beat.rates[name])
    return family


def _who(beat: Heartbeat) -> list[str]:
    return [beat.worker, beat.role, beat.host]
