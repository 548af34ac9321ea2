"""A soak's report in Markdown, and in HTML with a chart of each curve. Pure, but for `write_report`."""

from __future__ import annotations

from pathlib import Path

from azq.console import report as pages
from azq.console.report import ReportSection
from azq.console.svg import line_chart
from azq.files import make_folders, publish_file
from azq.status.curves import CurvePoint
from azq.validate.soak import SoakReport


def titled(report: SoakReport) -> str:
    return f"Soak of {report.game}: {report.versions} versions, {'passed' if report.passed else 'failed'}"


def sections_of(report: SoakReport) -> list[ReportSection]:
    """A table of all lines, and the curves over versions."""
    rows = [(line.what, f"{line.found:.4g}", line.bounds, "passed" if line.passed else "failed") for line in report.lines]
    charts = [
        line_chart(name, {name: [CurvePoint(version, value) for version, value in enumerate(curve)]}, "versions", "{:.4g}".format)
        for name, curve in report.curves.items()
    ]
    return [ReportSection("", ("what", "found", "bounds", ""), rows, charts)]


def write_report(report: SoakReport, folder: Path) -> None:
    """`soak.md` and `soak.html`, each whole or not at all."""
    make_folders(folder)
    title, sections = titled(report), sections_of(report)
    publish_file(folder / "soak.md", pages.as_markdown(title, sections).encode())
    publish_file(folder / "soak.html", pages.as_html(title, sections).encode())


def as_markdown(report: SoakReport) -> str:
    """What the command prints."""
    return pages.as_markdown(titled(report), sections_of(report)).rstrip()
