"""Writes the Grafana boards in `dashboards/` from the few lines a panel needs.

Usage: make_boards.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from azq.metrics import FIGURES

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


def worker_panels() -> list[Panel]:
    """The charts of what each process tells of itself, in the order of their figures."""
    panels: dict[str, Panel] = {}
    for figure in FIGURES:
        for chart in figure.charts:
            before = panels.get(chart.title, Panel(chart.title, chart.unit, ()))
            panels[chart.title] = replace(before, queries=(*before.queries, (chart.query or figure.metric, chart.legend)))
    return list(panels.values())


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
    *worker_panels(),
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
