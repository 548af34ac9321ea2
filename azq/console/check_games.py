"""`azq games check`: the rules that a game keeps or breaks, for people and for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.progress import Progress

from azq import config, games
from azq.games.check import Report, check


def check_game(name: str, params: Sequence[str], count: int, as_json: bool) -> bool:
    """Prints a report; True where nothing was found."""
    values = config.parse_params(params)
    game = games.load(name, **values)
    with Progress(console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"random games of {name}", total=count)
        report = check(game, count, progress=lambda done: progress.update(task, completed=done))
    sys.stdout.write((json.dumps(msgspec.to_builtins(report) | {"sound": report.sound}) if as_json else as_text(report)) + "\n")
    return report.sound


def as_text(report: Report) -> str:
    """The report in lines."""
    lines = [f"{report.game}: {report.games} random games, {report.plies} plies, {report.playouts_per_s:,.0f} random games a CPU-second"]
    for finding in report.findings:
        history = ",".join(map(str, finding.history[-40:]))
        lines.append(f"BROKEN {finding.rule}: {finding.detail} (after actions {history or 'none'})")
    return "\n".join(lines if report.findings else [*lines, "every rule holds"])
