"""The command `azq profile`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from azq.cli.options import AsJson, ConfigFile, Overrides, emit
from azq.errors import ConfigError


def profile(
    run: Annotated[str | None, typer.Argument(help="A running run; not with --local.")] = None,
    local: Annotated[bool, typer.Option("--local", help="Start a run for the purpose, and take it away again.")] = False,
    game: Annotated[str, typer.Option("--game", help="Game of --local, as its preset has it.")] = "connect_four",
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="How long to look.")] = 10.0,
    picture: Annotated[Path | None, typer.Option("--plot", help="Also draw it into this PNG (extra `plot`).")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Where the time goes: by role and phase, shares of wall time and of CPU, from the heartbeats of a run at work."""
    from azq.config import load
    from azq.console.profile.profile import profile_local, profile_run
    from azq.console.profile.table import as_text

    if local == (run is not None):
        raise ConfigError("name a running run, or give --local and no name")
    sets = overrides or []
    found = profile_local(game, seconds, sets) if run is None else profile_run(load(config, sets), run, seconds)
    if picture is not None:
        from azq.console.profile.plot import plot

        plot(found, picture, f"where the time goes: {run or game}")
    emit([dataclasses.asdict(each) for each in found], as_json, as_text(found))
