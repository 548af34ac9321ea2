"""The command `azq doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from azq.cli.options import AsJson, ConfigFile, Overrides
from azq.errors import ExitCode


def doctor(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Look at settings, disk, brokers, clock, daemon, workers and weights from here; exit code 2 where something is wrong."""
    from azq.config import load
    from azq.console.doctor import examine

    found = []
    for check in examine(load(config, overrides or [])):
        found.append(check)
        if not as_json:
            typer.echo(str(check))
    failed = any(check.verdict == "fail" for check in found)
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "checks": [asdict(check) for check in found]}))
    if failed:
        raise typer.Exit(int(ExitCode.CONFIG))
