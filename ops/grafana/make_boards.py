"""Writes the Grafana boards in `dashboards/` from the few lines a panel needs.

Usage: make_boards.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH, COLUMNS, HEIGHT = 24, 3, 8
SOURCE = {"type": "prometheus", "uid": "azq-prometheus"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart: title, Grafana's unit, and (PromQL, legend) pairs."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    stacked: bool = False


def panel(title: str, unit: str, *queries: tuple[str, str], kind: str = "timeseries") -> Panel:
    """A panel."""
    return Panel(title, unit, queries, kind)


def spent(title: str, role: str) -> Panel:
    """Where the processes of a role spend their time, as areas that add up to all of it."""
    query = f'avg by (phase) (azq_phase_wall_share{{role="{role}"}})'
    return Panel(title, "percentunit", ((query, "{{phase}}"),), stacked=True)


OF_RUN = '{run=~"$run"}'
RUN = (
    panel("Games", "short", (f"azq_games_per_s{OF_RUN}", "{{run}} games/s")),
    panel(
        "Simulations and evaluations",
        "short",
        (f"azq_simulations_per_s{OF_RUN}", "{{run}} simulations/s"),
        (f"azq_evaluations_per_s{OF_RUN}", "{{run}} evaluations/s"),
    ),
    panel("Mean batch", "short", (f"azq_mean_batch{OF_RUN}", "{{run}}")),
    panel("Losses", "none", (f"azq_loss_policy{OF_RUN}", "{{run}} policy"), (f"azq_loss_value{OF_RUN}", "{{run}} value")),
    panel("Strength: error share", "percentunit", (f"azq_error_share{OF_RUN}", "{{run}}")),
    panel("Strength: Elo", "none", (f"azq_elo{OF_RUN}", "{{run}}")),
    panel("Policy lag", "none", (f"azq_policy_lag{OF_RUN}", "{{run}} versions")),
    panel(
        "Weight version and learning rate",
        "none",
        (f"azq_weight_version{OF_RUN}", "{{run}} version"),
        (f"azq_learning_rate{OF_RUN}", "{{run}} learning rate"),
    ),
    panel(
        "Samples trained on",
        "short",
        (f"azq_samples_per_s{OF_RUN}", "{{run}} samples/s"),
        (f"azq_samples_per_insert{OF_RUN}", "{{run}} per insert"),
        (f"azq_samples_processed{OF_RUN}", "{{run}} in all"),
    ),
    panel(
        "Ranks that train",
        "short",
        (f"azq_ranks_healthy{OF_RUN}", "{{run}} healthy"),
        (f"azq_ranks_failed{OF_RUN}", "{{run}} failed"),
        (f"azq_ranks_fallback_active{OF_RUN}", "{{run}} fallback"),
    ),
    panel(
        "Training step",
        "s",
        (f"azq_train_batch_seconds{OF_RUN}", "{{run}} whole"),
        (f"azq_train_sync_seconds{OF_RUN}", "{{run}} waiting for ranks"),
    ),
    panel("Scaling efficiency", "percentunit", (f"azq_scaling_efficiency{OF_RUN}", "{{run}}")),
    panel("Replay buffer", "short", (f"azq_samples{OF_RUN}", "{{run}} samples"), (f"azq_window_samples{OF_RUN}", "{{run}} window")),
    panel("Held back", "bool", (f"azq_selfplay_stalled{OF_RUN}", "{{run}} self-play"), (f"azq_learner_waiting{OF_RUN}", "{{run}} learner")),
    panel("Ledger balanced", "bool_yes_no", (f"azq_ledger_balanced{OF_RUN}", "{{run}}"), kind="stat"),
    panel(
        "Games: opened, finished, learned from",
        "short",
        (f"azq_games_opened_total{OF_RUN}", "{{run}} opened"),
        (f"azq_games_finished_total{OF_RUN}", "{{run}} finished"),
        (f"azq_games_inserted_total{OF_RUN}", "{{run}} inserted"),
    ),
    panel(
        "Games: abandoned, duplicates dropped",
        "short",
        (f"azq_games_abandoned_total{OF_RUN}", "{{run}} abandoned"),
        (f"azq_games_duplicates_dropped_total{OF_RUN}", "{{run}} duplicates dropped"),
    ),
    panel("Open games", "short", (f"azq_open_games{OF_RUN}", "{{run}}")),
)
FLEET = (
    panel("Processes", "short", ("azq_workers", "{{role}}"), kind="stat"),
    panel("Brokers up", "bool_yes_no", ("azq_broker_up", "{{plane}}"), kind="stat"),
    panel("Queues without worker", "short", ("azq_unroutable_queues", "queues"), kind="stat"),
    panel("Evaluation latency, p50", "s", ('azq_eval_latency_seconds{quantile="0.5"}', "{{worker}}")),
    panel("Evaluation latency, p95", "s", ('azq_eval_latency_seconds{quantile="0.95"}', "{{worker}}")),
    panel("Evaluation latency, p99", "s", ('azq_eval_latency_seconds{quantile="0.99"}', "{{worker}}")),
    panel("Batch, p50 and p95", "short", ('azq_batch_leaves{quantile=~"0.5|0.95"}', "{{worker}} {{quantile}}")),
    panel("Network busy", "percentunit", ("azq_network_busy", "{{worker}}")),
    panel("GPU memory", "bytes", ("azq_gpu_memory_used_bytes", "{{worker}} used"), ("azq_gpu_memory_bytes", "{{worker}} in all")),
    panel("CPU", "short", ("rate(azq_process_cpu_seconds_total[1m])", "{{role}} {{worker}} cores")),
    panel("Memory", "bytes", ("azq_process_resident_bytes", "{{role}} {{worker}}")),
    panel("Room for segments", "bytes", ("azq_disk_free_bytes", "{{worker}}")),
    panel("Evaluations by process", "short", ("azq_worker_evaluations_per_s", "{{role}} {{worker}}")),
    panel(
        "Evaluations spared",
        "percentunit",
        ("azq_cache_hits_per_s / (azq_cache_lookups_per_s > 0)", "{{worker}} known"),
        ("azq_merged_leaves_per_s / (azq_cache_lookups_per_s > 0)", "{{worker}} merged"),
        ("azq_exact_simulations_per_s / (azq_worker_simulations_per_s > 0)", "{{worker}} exact"),
    ),
    panel("Games by worker", "short", ("azq_worker_games_per_s", "{{worker}}")),
    panel("Evaluations asked for again", "short", ("rate(azq_evaluations_resent_total[1m])", "{{worker}} /s")),
    panel("Forward passes that fell back", "short", ("azq_inference_fallbacks_total", "{{worker}}")),
    panel("Weight switch", "s", ("azq_weight_switch_seconds", "{{worker}}")),
    panel("Heartbeat age", "s", ("azq_heartbeat_age_seconds", "{{role}} {{worker}}")),
    spent("Self-play: where the time goes", "selfplay"),
    spent("Inference: where the time goes", "inference"),
    spent("Learner: where the time goes", "learner"),
    panel("CPU by phase", "short", ("sum by (role, phase) (azq_phase_cpu_cores)", "{{role}} {{phase}} cores")),
    panel("GPU by phase", "percentunit", ("avg by (role, phase) (azq_phase_device_share)", "{{role}} {{phase}}")),
    panel("Uptime", "s", ("time() - azq_process_start_time_seconds", "{{role}} {{worker}}")),
    panel("Jobs", "short", ("azq_jobs", "{{queue}} {{state}}"), ("azq_queue_slots", "{{queue}} slots")),
    panel("Backlog of the streams", "short", ("azq_stream_entries", "{{plane}} {{run}}")),
    panel("Broker memory", "bytes", ("azq_broker_used_memory_bytes", "{{plane}} used"), ("azq_broker_max_memory_bytes", "{{plane}} limit")),
    panel("Dead letters", "short", ("azq_dead_letters_total", "{{plane}}")),
    panel(
        "Daemon's looks",
        "short",
        ("rate(azq_daemon_ticks_total[1m])", "per second"),
        ("rate(azq_daemon_failed_ticks_total[1m])", "failed per second"),
    ),
)
RUN_CHOICE = {
    "name": "run",
    "type": "query",
    "datasource": SOURCE,
    "query": {"query": "label_values(azq_run_state, run)", "refId": "run"},
    "refresh": 2,
    "includeAll": True,
    "multi": True,
    "current": {"text": "All", "value": "$__all"},
}
BOARDS = {"azq-run": ("azq: runs", RUN, [RUN_CHOICE]), "azq-fleet": ("azq: fleet", FLEET, [])}


def board(uid: str) -> dict[str, Any]:
    """A board as Grafana's JSON model."""
    title, panels, choices = BOARDS[uid]
    return {
        "uid": uid,
        "title": title,
        "tags": ["azq"],
        "schemaVersion": 39,
        "refresh": "5s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": choices},
        "panels": [_panel(number, entry) for number, entry in enumerate(panels)],
    }


def text(uid: str) -> str:
    """A board's file."""
    return json.dumps(board(uid), indent=1) + "\n"


def _panel(number: int, entry: Panel) -> dict[str, Any]:
    width = WIDTH // COLUMNS
    return {
        "id": number + 1,
        "type": entry.kind,
        "title": entry.title,
        "datasource": SOURCE,
        "gridPos": {"x": number % COLUMNS * width, "y": number // COLUMNS * HEIGHT, "w": width, "h": HEIGHT},
        "fieldConfig": {"defaults": _defaults(entry), "overrides": []},
        "targets": [_target(place, query, legend) for place, (query, legend) in enumerate(entry.queries)],
    }


def _defaults(entry: Panel) -> dict[str, Any]:
    """Axes of counts, shares and seconds begin at zero; losses and ratings need not."""
    found: dict[str, Any] = {"unit": entry.unit} if entry.unit == "none" else {"unit": entry.unit, "min": 0}
    if entry.stacked:
        found |= {"max": 1, "custom": {"fillOpacity": 60, "stacking": {"mode": "normal"}}}
    return found


def _target(place: int, query: str, legend: str) -> dict[str, Any]:
    return {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": query, "legendFormat": legend}


def main(arguments: Sequence[str]) -> None:
    """Writes every board."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent / "dashboards"
    folder.mkdir(parents=True, exist_ok=True)
    for uid in BOARDS:
        (folder / f"{uid}.json").write_text(text(uid), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
