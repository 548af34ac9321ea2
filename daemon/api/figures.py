"""What is known of the fleet, as Prometheus metrics. Pure; names end in their unit, counters in `_total`, as Prometheus asks.

Quantiles are gauges over the newest observations of one process: they can be compared and bounded, not added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from azq import metrics, phases
from azq.ledger.types import JobView
from azq.metrics import Chart, Figure
from azq.status.brokers import PlaneFacts
from azq.status.summary import RunStatus
from azq.status.workers import live_queues, slots_of
from azq.wire.messages import Heartbeat
from daemon.serve.health import HealthRecord


def _figure(name: str, metric: str, help: str, title: str = "", legend: str = "", unit: str = "short", **more: Any) -> Figure:
    """A figure of a run's status, and the chart of the runs' board that shows it."""
    charts = (Chart(title, f"{{{{run}}}} {legend}".strip(), unit, kind=more.pop("kind", "timeseries")),) if title else ()
    return Figure(name, metric, help, charts, **more)


#: Every figure of a run, by its place in `RunStatus`, in the order of the board; None there: nothing to tell yet.
# fmt: off
RUN_FIGURES = (
    _figure("games_per_s", "azq_games_per_s", "Finished games per second.", "Games", "games/s"),
    _figure("simulations_per_s", "azq_simulations_per_s", "Search simulations of self-play per second; workers tell those of matches.",
            "Simulations and evaluations", "simulations/s"),
    _figure("evaluations_per_s", "azq_evaluations_per_s", "Leaves evaluated per second.", "Simulations and evaluations", "evaluations/s"),
    _figure("mean_batch", "azq_mean_batch", "Leaves per forward pass.", "Mean batch"),
    _figure("loss_policy", "azq_loss_policy", "Policy loss.", "Losses", "policy", "none"),
    _figure("loss_value", "azq_loss_value", "Value loss.", "Losses", "value", "none"),
    _figure("strength.error_share", "azq_error_share", "Share of moves that lose a result class, newest graded weights.",
            "Strength: error share", unit="percentunit"),
    _figure("strength.elo", "azq_elo", "Elo of the newest rated weights.", "Strength: Elo", unit="none"),
    _figure("policy_lag", "azq_policy_lag", "Versions between the weights that serve and those self-play uses.",
            "Policy lag", "versions", "none"),
    _figure("weight_version", "azq_weight_version", "Newest published weight version.",
            "Weight version and learning rate", "version", "none"),
    _figure("learning_rate", "azq_learning_rate", "Learning rate.", "Weight version and learning rate", "learning rate", "none"),
    _figure("samples_per_s", "azq_samples_per_s", "Samples trained on per second.", "Samples trained on", "samples/s"),
    _figure("samples_per_insert", "azq_samples_per_insert", "Samples trained on per sample inserted.", "Samples trained on", "per insert"),
    _figure("ranks.samples_processed", "azq_samples_processed", "Samples trained on, of the whole run.", "Samples trained on", "in all"),
    _figure("ranks.healthy", "azq_ranks_healthy", "Processes that train.", "Ranks that train", "healthy"),
    _figure("ranks.failed", "azq_ranks_failed", "Processes that should train and do not.", "Ranks that train", "failed"),
    _figure("ranks.fallback_active", "azq_ranks_fallback_active", "1 while training goes on with fewer processes than configured.",
            "Ranks that train", "fallback"),
    _figure("ranks.batch_s", "azq_train_batch_seconds", "One training step, waiting for other ranks included.",
            "Training step", "whole", "s"),
    _figure("ranks.sync_s", "azq_train_sync_seconds", "Waiting for other ranks in one training step.",
            "Training step", "waiting for ranks", "s"),
    _figure("ranks.efficiency", "azq_scaling_efficiency", "Samples per second / what the ranks would do if none waited.",
            "Scaling efficiency", unit="percentunit"),
    _figure("samples", "azq_samples", "Samples in the segment log.", "Replay buffer", "samples"),
    _figure("window", "azq_window_samples", "Samples the learner draws from.", "Replay buffer", "window"),
    _figure("games_alone", "azq_games_alone", "Games on the learner's disk alone, though the run's store is to keep games.",
            "Games on one disk alone"),
    _figure("selfplay_stalled", "azq_selfplay_stalled", "1 while the limiter holds self-play back.", "Held back", "self-play", "bool"),
    _figure("learner_waiting", "azq_learner_waiting", "1 while the limiter holds the learner back.", "Held back", "learner", "bool"),
    _figure("ledger.balanced", "azq_ledger_balanced", "1 while the ledger adds up.", "Ledger balanced", unit="bool_yes_no", kind="stat"),
    *(_figure(f"ledger.{name}", f"azq_games_{name}", f"Games {name}.", "Games: opened, finished, learned from", name, counts_up=True)
      for name in ("opened", "finished", "inserted")),
    _figure("ledger.abandoned", "azq_games_abandoned", "Games abandoned.",
            "Games: abandoned, duplicates dropped", "abandoned", counts_up=True),
    _figure("ledger.duplicates_dropped", "azq_games_duplicates_dropped", "Games duplicates dropped.",
            "Games: abandoned, duplicates dropped", "duplicates dropped", counts_up=True),
    _figure("open_games", "azq_open_games", "Games begun and not finished.", "Open games"),
    _figure("learner_live", "azq_learner_live", "1 while the learner's status lives."),
    _figure("crash_loops", "azq_crash_loops", "Processes of the run, or of all runs, that died three times within ten minutes."),
    _figure("ledger_mended", "azq_ledger_mended", "Faults in the keys of the run's ledger that were mended within an hour."),
    _figure("learner_step", "azq_learner_step", "Training steps done."),
    _figure("progress", "azq_progress", "Share of the run's horizon that is done."),
)
# fmt: on

RANK_FIGURES = tuple(
    Figure(name, metric, help, (Chart(title, "{{run}} rank {{rank}}", unit),))
    for name, metric, help, title, unit in (
        ("samples_per_s", "azq_rank_samples_per_s", "Samples per second of a rank that waits for no other.", "Speed of ranks", "short"),
        ("rows", "azq_rank_rows", "A rank's samples of one training step.", "Rows of ranks", "short"),
        ("sync_s", "azq_rank_sync_seconds", "A rank's waiting for others in one training step.", "Waiting of ranks", "s"),
        ("memory_bytes", "azq_rank_memory_bytes", "Memory that a rank's process has of its device.", "Memory of ranks", "bytes"),
        ("state_bytes", "azq_rank_state_bytes", "Weights, gradients, optimiser and average that a rank holds.", "Held by ranks", "bytes"),
        ("errors", "azq_rank_errors", "Errors of a rank, until they are forgiven.", "Errors of ranks", "short"),
    )
)
PLANE_FIGURES = (
    Figure("used_bytes", "azq_broker_used_memory_bytes", "Memory of the plane's server."),
    Figure("limit_bytes", "azq_broker_max_memory_bytes", "Limit of the plane's server; 0: none."),
    Figure("dead_letters", "azq_dead_letters", "Frames that could not be read.", counts_up=True),
)
WORKER_PHASES = (
    ("azq_phase_wall_share", "Share of a process's wall time by phase; of several loops the mean.", phases.WALL),
    ("azq_phase_cpu_cores", "CPU cores that a process uses by phase.", phases.CPU),
    ("azq_phase_device_share", "Share of wall time that a phase has on a process's GPU.", phases.DEVICE),
)
WHO = ["worker", "role", "host"]

Row = tuple[Sequence[str], float]  # values of the labels, and of the metric


def of_daemon(pulse: HealthRecord) -> Iterator[Metric]:
    """The daemon itself."""
    yield CounterMetricFamily("azq_daemon_ticks", "Looks at the control plane.", value=pulse.ticks)
    yield CounterMetricFamily("azq_daemon_failed_ticks", "Looks that failed.", value=pulse.failed_ticks)
    unroutable = sum(report.kind == "unroutable" for report in pulse.reports)
    yield GaugeMetricFamily("azq_unroutable_queues", "Queues with work and no live worker.", value=unroutable)


def of_planes(planes: Sequence[PlaneFacts]) -> Iterator[Metric]:
    """The brokers; the backlog of the control plane is samples, that of the data plane evaluation requests."""
    up = [plane for plane in planes if plane.up]
    yield _gauge("azq_broker_up", "1 while the plane answers.", ["plane"], (([plane.plane], plane.up) for plane in planes))
    for figure in PLANE_FIGURES:
        yield _metric(figure, ["plane"], (([plane.plane], getattr(plane, figure.name)) for plane in up))
    waiting = (([plane.plane, run], entries) for plane in up for run, entries in plane.waiting.items())
    yield _gauge("azq_stream_entries", "Entries not acknowledged yet.", ["plane", "run"], waiting)


def of_jobs(workers: Sequence[Heartbeat], jobs: Sequence[JobView]) -> Iterator[Metric]:
    """Queues: what live workers can hold and what waits."""
    roles = Counter(beat.role for beat in workers)
    yield _gauge("azq_workers", "Processes with a live heartbeat.", ["role"], (([role], count) for role, count in sorted(roles.items())))
    slots = (([queue], slots_of(workers, queue)) for queue in live_queues(workers))
    yield _gauge("azq_queue_slots", "Jobs that live workers can hold.", ["queue"], slots)
    counts = Counter((view.job.queue, str(view.state)) for view in jobs)
    yield _gauge("azq_jobs", "Jobs that have not ended.", ["queue", "state"], sorted(counts.items()))


def of_workers(workers: Sequence[Heartbeat], now_ms: int) -> Iterator[Metric]:
    """Every live process by what its heartbeat says; a figure that a role does not have is left out."""
    ages = ((_who(beat), max(0, now_ms - beat.sent_ms) / 1000) for beat in workers)
    yield _gauge("azq_heartbeat_age_seconds", "Since a process's last heartbeat.", WHO, ages)
    starts = ((_who(beat), beat.started_ms / 1000) for beat in workers)
    yield _gauge("azq_process_start_time_seconds", "When a process started, in seconds since 1970.", WHO, starts)
    for figure in metrics.FIGURES:
        if figure.metric:
            yield _metric(figure, [*WHO, "quantile"] if figure.quantiles else WHO, _of_figure(figure, workers))
    for name, text, prefix in WORKER_PHASES:
        shares = (([*_who(beat), phase], share) for beat in workers for phase, share in phases.part(beat.rates, prefix).items())
        yield _gauge(name, text, [*WHO, "phase"], shares)


def of_runs(statuses: Sequence[RunStatus]) -> Iterator[Metric]:
    """Every run, its ledger included."""
    for figure in RUN_FIGURES:
        rows = (([status.run], value) for status in statuses if (value := attrgetter(figure.name)(status)) is not None)
        yield _metric(figure, ["run"], rows)
    for figure in RANK_FIGURES:
        of_ranks = (([status.run, str(row.rank), row.host], getattr(row, figure.name)) for status in statuses for row in status.ranks.each)
        yield _metric(figure, ["run", "rank", "host"], of_ranks)
    states = (([status.run, str(status.state)], 1) for status in statuses)
    yield _gauge("azq_run_state", "1 for the state a run is in.", ["run", "state"], states)


def _of_figure(figure: Figure, workers: Sequence[Heartbeat]) -> Iterator[Row]:
    """The figure of every process that has it, or its quantiles."""
    quantiles = {metrics.at_quantile(figure.name, at): [f"{at:g}"] for at in metrics.QUANTILES}
    for name, quantile in (quantiles if figure.quantiles else {figure.name: []}).items():
        yield from (([*_who(beat), *quantile], figure.factor * beat.rates[name]) for beat in workers if name in beat.rates)


def _who(beat: Heartbeat) -> list[str]:
    return [beat.worker, beat.role, beat.host]


def _gauge(name: str, help: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    return _metric(Figure("", name, help), labels, rows)


def _metric(figure: Figure, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    family = (CounterMetricFamily if figure.counts_up else GaugeMetricFamily)(figure.metric, figure.help, labels=labels)
    for values, value in rows:
        family.add_metric(values, float(value))
    return family
