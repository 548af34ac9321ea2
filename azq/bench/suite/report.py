"""The run's figures as ratios and as Markdown. Pure, but for `replace_section`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from azq.bench.suite.plan import Case
from azq.errors import ConfigError

Figures = Mapping[str, Mapping[str, Any]]
BEGIN, END = "<!-- bench all: begin -->", "<!-- bench all: end -->"
OPEN = "open"  # no figure
#: head of a column -> key of a summary's row
NETWORKS = {
    "bare network, evaluations/s": "bare_evaluations_per_s",
    "through the stream": "stream_evaluations_per_s",
    "stream / bare": "stream_over_bare",
    "per CPU-second": "stream_over_bare_cpu",
    "learner, samples/s": "learner_samples_per_s",
    "learner / bare loop": "learner_over_bare",
}
SELFPLAY = {
    "self-play evaluations/s, 200 simulations": "selfplay_200_evaluations_per_s",
    "/ bare": "selfplay_over_bare",
    "per CPU-second": "selfplay_over_bare_cpu",
    "simulations/s, 200": "selfplay_200_simulations_per_s",
    "simulations/s, 32": "selfplay_32_simulations_per_s",
    "mean batch / largest": "batch_filled",
    "network busy": "network_busy",
    "GPU busy": "gpu_busy",
    "cores, all processes": "cpu_cores",
}


def ratio(above: float | None, below: float | None) -> float | None:
    """Their quotient; None where one of them is not known or the lower one is zero."""
    return None if not above or not below else round(above / below, 3)


def summary(which: Sequence[Case], figures: Figures) -> list[dict[str, Any]]:
    """A row a case: rates per second of wall time, per CPU-second on a CPU's own account, and ratios within this run."""
    return [_row(case, figures) for case in which]


def _row(case: Case, figures: Figures) -> dict[str, Any]:
    network, learner = figures.get(f"network/{case.name}", {}), figures.get(f"learner/{case.name}", {})
    deep, shallow = (figures.get(f"selfplay/{case.name}/{count}", {}) for count in (200, 32))
    row: dict[str, Any] = {
        "case": case.name,
        "batch": case.batch,
        "bare_evaluations_per_s": network.get("bare_evaluations_per_s"),
        "stream_evaluations_per_s": network.get("stream_evaluations_per_s"),
        "stream_over_bare": ratio(network.get("stream_evaluations_per_s"), network.get("bare_evaluations_per_s")),
        "stream_over_bare_cpu": ratio(network.get("stream_evaluations_per_cpu_s"), network.get("bare_evaluations_per_cpu_s")),
        "selfplay_over_bare": ratio(deep.get("evaluations_per_s"), network.get("bare_evaluations_per_s")),
        "selfplay_over_bare_cpu": ratio(deep.get("evaluations_per_cpu_s"), network.get("bare_evaluations_per_cpu_s")),
        "mean_batch": deep.get("inference_mean_batch"),
        "batch_filled": ratio(deep.get("inference_mean_batch"), case.batch),
        "network_busy": deep.get("network_busy"),
        "gpu_busy": deep.get("gpu_busy"),
        "cpu_cores": deep.get("cpu_cores"),
        "learner_samples_per_s": learner.get("samples_per_s"),
        "learner_over_bare": learner.get("share_of_bare"),
    }
    for count, found in ((200, deep), (32, shallow)):
        for name in ("evaluations_per_s", "simulations_per_s", "simulations_per_cpu_s", "games_per_s"):
            row[f"selfplay_{count}_{name}"] = found.get(name)
    for peer in ("pgx", "openspiel"):
        for count, found in ((200, deep), (32, shallow)):
            theirs = figures.get(f"{peer}/{case.name}/{count}", {})
            row[f"azq_over_{peer}_{count}"] = ratio(found.get("simulations_per_s"), theirs.get("simulations_per_s"))
            row[f"azq_over_{peer}_{count}_cpu"] = ratio(found.get("simulations_per_cpu_s"), theirs.get("simulations_per_cpu_s"))
    return row


def markdown(result: Mapping[str, Any]) -> str:
    """Tables of a run with its machine and commit, as they stand in the documentation."""
    about = result["machine"]
    version = f"commit `{about['commit']}`" if about["commit"] else "commit unknown"
    lines = [
        f"{about['device_name']}, {about['cores']} cores, {about['precision']}, torch {about['torch']}, {version}; "
        f"`azq bench all --size {result['size']}`, {result['minutes']:.1f} minutes, load {about['load_before']} before it began. "
        "Rates are per second of wall time, the network on one thread where it runs on a CPU; ratios are within this run.",
        "",
    ]
    rows = result["summary"]
    for columns in (NETWORKS, SELFPLAY):
        lines += table(["network, batch", *columns], [_cells(row, columns) for row in rows])
    return "\n".join([*lines, *_peers(rows), *_latency(result["parts"]), *_left_out(result["left_out"])]).rstrip() + "\n"


def _cells(row: Mapping[str, Any], columns: Mapping[str, str]) -> list[str]:
    return [f"{row['case']}, {row['batch']:,}", *(number(row[key]) for key in columns.values())]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table and an empty line."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def number(value: float | None) -> str:
    """A figure with three digits or whole; `open` where there is none."""
    if value is None:
        return OPEN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def replace_section(path: Path, text: str) -> None:
    """Puts the text between the two marks of a file. Raises `ConfigError` where they are missing."""
    old = path.read_text("utf-8")
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        raise ConfigError(f"{path} has no section between {BEGIN} and {END}; put the two lines where the tables belong")
    before, after = old[: old.index(BEGIN)], old[old.index(END) :]
    path.write_text(f"{before}{BEGIN}\n{text}{after}", "utf-8")


def _peers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [
        (peer, str(count), number(row[f"azq_over_{peer}_{count}"]), number(row[f"azq_over_{peer}_{count}_cpu"]))
        for row in rows
        for peer in ("pgx", "openspiel")
        for count in (200, 32)
        if row[f"azq_over_{peer}_{count}"] is not None
    ]
    return table(("azq over", "simulations", "simulations/s", "per CPU-s"), found) if found else []


def _latency(parts: Figures) -> list[str]:
    rows = [
        (
            name.partition("/")[2],
            str(found["batch"]),
            *(number(found[key]) for key in ("bare_p50_ms", "round_trip_p50_ms", "round_trip_p99_ms", "added_p50_ms", "added_p99_ms")),
        )
        for name, found in parts.items()
        if name.startswith("latency/")
    ]
    head = ("one request at a time", "batch", "bare p50, ms", "round trip p50", "p99", "added p50", "added p99")
    return table(head, rows) if rows else []


def _left_out(reasons: Mapping[str, str]) -> list[str]:
    return [f"Not measured: {'; '.join(f'{name} ({reason})' for name, reason in reasons.items())}.", ""] if reasons else []
