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

from azq.metrics import FIGURES, Figure
from daemon.api.figures import RANK_FIGURES, RUN_FIGURES

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


def panels_of(figures: Sequence[Figure], choice: str = "") -> list[Panel]:
    """The charts of figures, in their order; those of one title are one. `choice` picks series where a chart shows a metric as it is."""
    panels: dict[str, Panel] = {}
    for figure in figures:
        metric = f"{figure.metric}{'_total' if figure.counts_up else ''}{choice}"
        for chart in figure.charts:
            before = panels.get(chart.title, Panel(chart.title, chart.unit, (), chart.kind))
            panels[chart.title] = replace(before, queries=(*before.queries, (chart.query or metric, chart.legend)))
    return list(panels.values())


RUN = (
    *panels_of((*RUN_FIGURES, *RANK_FIGURES), '{run=~"$run"}'),
    panel("Losses, policy and value together", "none", ('azq_loss_policy{run=~"$run"} + azq_loss_value{run=~"$run"}', "{{run}}")),
)
FLEET = (
    panel("Processes", "short", ("azq_workers", "{{role}}"), kind="stat"),
    panel("Brokers up", "bool_yes_no", ("azq_broker_up", "{{plane}}"), kind="stat"),
    panel("Queues without worker", "short", ("azq_unroutable_queues", "queues"), kind="stat"),
    panel("Evaluators busy, all together", "percentunit", ("avg(azq_network_busy)", "busy"), kind="gauge"),
    panel("GPUs busy, all together", "percentunit", ("avg(azq_gpu_busy)", "busy"), kind="gauge"),
    panel("Jobs that wait", "short", ('sum by (queue) (azq_jobs{state="queued"})', "{{queue}}"), kind="gauge"),
    # Latencies are told as quantiles of each process, not as buckets: where most of them are, and which are far off, is what shows.
    panel(
        "Evaluation latency, how the processes' p95 are spread",
        "s",
        ('azq_eval_latency_seconds{quantile="0.95"}', "{{worker}}"),
        kind="heatmap",
    ),
    *panels_of(FIGURES),
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
        **({"options": _spread(entry)} if entry.kind == "heatmap" else {}),
    }


def _spread(entry: Panel) -> dict[str, Any]:
    """How many series are in which of the buckets that Grafana makes, two to each doubling."""
    scale = {"mode": "size", "value": "2", "scale": {"type": "log", "log": 2}}
    return {"calculate": True, "calculation": {"yBuckets": scale}, "yAxis": {"unit": entry.unit}, "color": {"mode": "scheme"}}


def _defaults(entry: Panel) -> dict[str, Any]:
    """Axes of counts, shares and seconds begin at zero; losses and ratings need not."""
    found: dict[str, Any] = {"unit": entry.unit} if entry.unit == "none" else {"unit": entry.unit, "min": 0}
    if entry.kind == "gauge" and entry.unit == "percentunit":
        found |= {"max": 1}
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
