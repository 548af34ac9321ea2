"""Commands about runs that work on the control plane itself: `azq runs restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from azq.cli_options import AsJson, ConfigFile, emit


def restore(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with run.toml and segments, on this host.")],
    run: Annotated[str, typer.Option("--run", help="Name of the run; that of the folder by default.")] = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a run go on from its folder after its control plane was lost, or write off what its folder lost."""
    from azq.config import load
    from azq.console.restore import restore_run

    done = restore_run(load(config), folder, run)
    emit(done, as_json, f"run {done['run']} goes on from {done['games']} games; {done['written_off']} written off")
