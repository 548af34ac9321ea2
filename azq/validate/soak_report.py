"""A soak's report in Markdown, and in HTML with a plot of each curve. Pure, but for `write_report`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from azq.files import make_folders, publish_file
from azq.validate.soak import SoakReport

WIDTH, HEIGHT = 640, 120
STYLE = (
    "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:left}.failed{color:#b00}svg{display:block}"
)


def as_rows(report: SoakReport) -> list[tuple[str, str, str, str]]:
    """What, found, bounds, and whether it passed."""
    return [(line.what, f"{line.found:.4g}", line.bounds, "passed" if line.passed else "failed") for line in report.lines]


def as_markdown(report: SoakReport) -> list[str]:
    head = [f"# Soak of {report.game}: {report.versions} versions, {'passed' if report.passed else 'failed'}", ""]
    return [*head, "| what | found | bounds | |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in as_rows(report))]


def as_html(report: SoakReport) -> str:
    title = f"Soak of {escape(report.game)}: {report.versions} versions, {'passed' if report.passed else 'failed'}"
    rows = [f'<tr class="{row[3]}">{"".join(f"<td>{escape(cell)}</td>" for cell in row)}</tr>' for row in as_rows(report)]
    plots = [f"<h3>{escape(name)}: {min(curve):.4g} to {max(curve):.4g}</h3>{plot(curve)}" for name, curve in report.curves.items()]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    table = f"<table><tr><th>what</th><th>found</th><th>bounds</th><th></th></tr>{''.join(rows)}</table>"
    return f"{head}<h1>{title}</h1>{table}{''.join(plots)}</html>"


def plot(curve: Sequence[float]) -> str:
    """A curve over versions, from its lowest to its highest point."""
    low, span, steps = min(curve), (max(curve) - min(curve)) or 1.0, max(1, len(curve) - 1)
    points = " ".join(f"{WIDTH * index / steps:.1f},{HEIGHT * (1 - (value - low) / span):.1f}" for index, value in enumerate(curve))
    line = f'<polyline points="{points}" fill="none" stroke="#246" stroke-width="1.5"/>'
    return f'<svg viewBox="0 -2 {WIDTH} {HEIGHT + 4}" width="{WIDTH}" height="{HEIGHT}">{line}</svg>'


def write_report(report: SoakReport, folder: Path) -> None:
    """`soak.md` and `soak.html`, each whole or not at all."""
    make_folders(folder)
    publish_file(folder / "soak.md", ("\n".join(as_markdown(report)) + "\n").encode())
    publish_file(folder / "soak.html", as_html(report).encode())
